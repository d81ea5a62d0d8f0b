// Trains a custom model and evaluates its checkpoint: model_example CONFIG FOLDER TOKENS [KEY=VALUE ...].
#include "gate.h"

#include <cstdio>

using namespace ringtrain;

int main(int argc, char** argv) try {
  if (argc < 4) fail(ExitCode::usage, "usage: model_example CONFIG FOLDER TOKENS [KEY=VALUE ...]");
  Launcher launcher = Launcher::from_environment();
  const Log log = [](const std::string& line) { std::fprintf(stderr, "%s\n", line.c_str()); };
  TrainOptions options;
  options.model = gated_model();
  options.config = read_config(argv[1], {argv + 4, argv + argc}, ConfigUse::run, rule_of(options.model));
  options.output = argv[2];
  options.start.resume = true;  // if the folder has a run
  const ExitCode code = train(prepare_run(options, log, launcher), log, launcher);

  EvaluationOptions evaluation;
  evaluation.model = options.model;
  evaluation.checkpoint = options.output;
  evaluation.data = argv[3];
  evaluation.mesh = options.config.mesh;
  evaluation.request.context_lengths = options.config.evaluation.context_lengths;
  evaluation.request.target_tokens = evaluation.request.target_blocks = EvaluationOptions::of_the_checkpoint;
  const EvaluationSummary summary = evaluate_checkpoint(evaluation, launcher);
  if (launcher.is_rank_zero()) std::printf("perplexity %.9f\n", summary.results.back().perplexity);
  launcher.finish(static_cast<int>(code));
  return static_cast<int>(code);
} catch (const Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return static_cast<int>(error.code());
}
