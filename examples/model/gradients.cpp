// Compares the backward of a custom model with finite differences, in one step of a config in double: gradients_example
// CONFIG TOKENS.
#include "gate.h"

#include <cstdio>

using namespace ringtrain;

int main(int argc, char** argv) try {
  if (argc != 3) fail(ExitCode::usage, "usage: gradients_example CONFIG TOKENS");
  TrainOptions options;
  options.model = gated_model();
  options.config = read_config(argv[1],
                               {std::string("data.train=") + argv[2], "training.dtype=float64", "training.seq_len=16",
                                "training.global_batch_size=1", "evaluation.interval=0"},
                               ConfigUse::run, rule_of(options.model));
  options.output = "never-made";
  const Run run = prepare_run(options, [](const std::string&) {});
  Launcher launcher;
  launcher.launch({.ranks = 1}, [&](Communicator& world) {
    ThreadPool pool(1);
    RankState state(run.config, run.table, {.evaluation_lengths = {16}}, 0, Device::cpu(), pool, &world, nullptr,
                    run.model);
    initialize_weights(state.stream, state.parameters, /*seed=*/1);
    StepResult step;
    step.step = 1;
    const double targets =
        load_batches(run, run.corpus, state, mask_counts(run.config.model, run.config.training), step);
    state.parameters.begin_step();
    state.model->train_step(state.batch, targets, /*last=*/true);
    state.parameters.finish_step();
    state.model->forget_loss_sum();
    const auto loss = [&] {
      state.model->evaluate(state.batch, {});
      return state.model->take_loss_sum() / targets;
    };
    for (int id = 0; id < static_cast<int>(run.table.all().size()); ++id) {
      const GradientCheck check =
          check_gradient(loss, state.parameters.weight(id), state.parameters.gradient(id), {.most = 8});
      std::printf("%-48s %.1e\n", run.table[id].name.c_str(), check.error);
      if (!(check.error < 1e-6)) fail(ExitCode::numeric, "the gradient of {} is wrong", run.table[id].name);
    }
    state.close();
  });
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return static_cast<int>(error.code());
}
