// Options that a program sets itself are checked like those of a file: each change of a config that was read, and each
// option of an evaluation or a generation, ends in one message with the key or the numbers involved, and nothing is
// started.
#include <functional>
#include <limits>

#include "framework/config/read_config.h"
#include "tests/train/train_fixture.h"
#include "train/check/check.h"

namespace ringtrain::testing {
namespace {

constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();

class ChangedConfig : public SplitTextTest {
 protected:
  TrainOptions options_of(const std::vector<std::string>& settings = {}) const {
    TrainOptions options;
    options.config = tiny(data, settings);
    options.output = at("run");
    return options;
  }
  /// Returns a stage that begins at a step.
  static TrainingStage from_step(std::int64_t step) {
    TrainingStage stage;
    stage.from_step = step;
    return stage;
  }
  void expect_refused_run(const std::vector<std::string>& parts, const std::function<void(TrainOptions&)>& change) {
    TrainOptions options = options_of({"training.steps=2"});
    change(options);
    expect_error_holding(ExitCode::usage, parts, [&] { train(prepare_run(options, quiet), quiet); });
    EXPECT_FALSE(std::filesystem::exists(at("run")));
  }
  void expect_refused(const std::string& sentence, const std::function<void(Config&)>& change) {
    expect_refused_run({"the config: " + sentence}, [&](TrainOptions& options) { change(options.config); });
  }
};

TEST_F(ChangedConfig, IsCheckedLikeAFile) {
  expect_refused("training.micro_batch_size: 0 is out of range; it must be an integer from 1 to 65536",
                 [](Config& c) { c.training.micro_batch_size = 0; });
  expect_refused("training.global_batch_size: 0 is out of range", [](Config& c) { c.training.global_batch_size = 0; });
  expect_refused("training.seq_len: -1 is out of range", [](Config& c) { c.training.seq_len = -1; });
  expect_refused("training.audit.rows: 1000000 is out of range", [](Config& c) { c.training.audit.rows = 1000000; });
  expect_refused("training.stages: has a stage from step 1 on", [](Config& c) { c.training.stages = {from_step(1)}; });
  expect_refused("training.stages: must ascend, but from_step 2 follows 3", [](Config& c) {
    c.training.stages = {from_step(3), from_step(2)};
  });
  expect_refused("training.stages: has 1001 stages", [](Config& c) { c.training.stages.assign(1001, {}); });
  expect_refused("training.shard: has a value that is not one of optimizer | gradients | weights",
                 [](Config& c) { c.training.shard = static_cast<Shard>(77); });
  expect_refused("training.dtype: has a value that is not one of float32",
                 [](Config& c) { c.training.dtype = static_cast<DType>(77); });
  expect_refused("model.num_key_value_heads: model.num_attention_heads = ",
                 [](Config& c) { c.model.num_attention_heads = c.model.num_key_value_heads + 1; });
  expect_refused("lora.rank: -4 is out of range", [](Config& c) { c.model.lora.rank = -4; });
  expect_refused("lora.targets: n0 is not one of the projections of this model's layers", [](Config& c) {
    c.model.lora.rank = 1;
    for (int i = 0; i < 50'000; ++i) c.model.lora.targets.push_back("n" + std::to_string(i));  // must not take long
  });
  expect_refused("checkpoint.keep: 0 is out of range", [](Config& c) { c.checkpoint.keep = 0; });
  expect_refused("checkpoint.interval: -5 is out of range", [](Config& c) { c.checkpoint.interval = -5; });
  expect_refused(R"(optimizer.lr: is the text "nan", but must be a number)",
                 [](Config& c) { c.optimizer.lr = not_a_number; });
  expect_refused("evaluation.context_lengths: evaluation.interval = 1 needs at least one length", [](Config& c) {
    c.evaluation.interval = 1;
    c.evaluation.context_lengths.clear();
  });
  expect_refused("evaluation.context_lengths: has 1001 lengths, but at most 1000 are allowed", [](Config& c) {
    for (std::int64_t length = 1; length <= 1001; ++length) c.evaluation.context_lengths.push_back(length);
  });
  expect_refused("data.train: the list is empty", [](Config& c) { c.data.train.clear(); });
  expect_refused_run({"TrainOptions::output is empty"}, [](TrainOptions& options) { options.output = ""; });
  expect_refused_run({"a run cannot stop after step -1"}, [](TrainOptions& options) { options.stop_after = -1; });
  expect_refused_run({"text.h5: the program's open_tokens returned no token file for this name"},
                     [](TrainOptions& options) {
                       options.open_tokens = [](const std::string&) { return std::unique_ptr<TokenFile>(); };
                     });
  CheckOptions checked;
  checked.train = options_of();
  checked.train.dump.folder = at("dump");
  checked.train.config.training.micro_batch_size = 0;
  expect_error(ExitCode::usage, "training.micro_batch_size: 0", [&] { check_run(checked, quiet); });
  checked.train.dump.folder = "";
  expect_error(ExitCode::usage, "TrainOptions::dump.folder is empty", [&] { check_run(checked, quiet); });
}

TEST_F(ChangedConfig, WhatACallbackThrowsIsTheProgramsMistake) {
  TrainOptions options = options_of({"training.steps=1"});
  options.callbacks.step = [](const StepReport&) { throw std::runtime_error("mine"); };
  expect_error(ExitCode::usage, "the program's callbacks.step threw: mine",
               [&] { train(prepare_run(options, quiet), quiet); });
  options.output = at("other");
  options.callbacks = {.stop = [](std::int64_t) -> bool { throw Error(ExitCode::data, "its own"); }};
  expect_error(ExitCode::data, "its own", [&] { train(prepare_run(options, quiet), quiet); });
}

TEST_F(ChangedConfig, OneThatFitsIsResolvedAndStaysAsItIs) {
  const Config config = tiny(data);
  const Config checked = checked_config(config, ConfigUse::run);
  EXPECT_TRUE(differences(config, checked).empty());
  Config changed = config;
  changed.model.head_dim = changed.model.num_key_value_heads = 0;
  changed.training.seq_len *= 2;
  const Config resolved = checked_config(changed, ConfigUse::run);
  EXPECT_EQ(resolved.model.head_dim, config.model.hidden_size / config.model.num_attention_heads);
  EXPECT_EQ(resolved.model.num_key_value_heads, config.model.num_attention_heads);
}

TEST_F(ChangedConfig, OptionsOfEvaluationAndGenerationAreCheckedToo) {
  run(tiny(data, {"training.steps=1"}), "run");
  Launcher threads;
  const auto evaluated = [&](const std::function<void(EvaluationOptions&)>& change) {
    EvaluationOptions options = evaluation_of("run", data, {{16}, 4, 2});
    change(options);
    return error_of(ExitCode::usage, [&] { evaluate_on_threads(options); });
  };
  const std::vector<std::pair<std::function<void(EvaluationOptions&)>, std::string>> evaluations{
      {[](auto& options) { options.dtype = "int4"; }, "--dtype int4: must be float32, float64 or bfloat16"},
      {[](auto& options) { options.device = "tpu"; }, "--device tpu: must be cpu, cuda or auto"},
      {[](auto& options) { options.checkpoint = ""; }, "the path of a checkpoint or a model is empty"},
      {[](auto& options) { options.threads_per_rank = -1; },
       "-1 threads per rank: give 1 or more, or 0 for cores / ranks"},
      {[](auto& options) {
         for (std::int64_t i = 17; i <= 1016; ++i) options.request.context_lengths.push_back(i);
       },
       "--context-lengths and --target-tokens: 1001 lengths exceed the limit of 1000"},
      {[](auto& options) { options.open_tokens = nullptr; },
       data + ": the program's open_tokens returned no token file for this name"}};
  for (const auto& [change, sentence] : evaluations) EXPECT_EQ(evaluated(change), sentence);
  const auto generated = [&](const std::function<void(GenerationOptions&)>& change, const Printer& print) {
    GenerationOptions options;
    options.checkpoint = at("run");
    options.tokens = {1, 2};
    options.max_new_tokens = 1;
    change(options);
    return error_of(ExitCode::usage, [&] { generate_from_checkpoint(options, threads, print); });
  };
  const Printer print = [](std::string_view) {};
  EXPECT_EQ(generated([](auto& options) { options.max_new_tokens = -1; }, print),
            "--max-new-tokens -1: must be 1 or more");
  EXPECT_EQ(generated(
                [](auto& options) {
                  options.stops = {"a", ""};
                },
                print),
            "--stop: a stop string must have at least one character");
  EXPECT_EQ(generated([](auto& options) { options.dtype = "int4"; }, print),
            "--dtype int4: must be float32, float64 or bfloat16");
  EXPECT_EQ(generated([](auto&) {}, {}), "generate_from_checkpoint() needs a function that receives the new text");
}

}  // namespace
}  // namespace ringtrain::testing
