// The key training.stages: what is read, written, and refused; and which stage applies to which step.
#include <fmt/core.h>

#include "framework/config/config.h"
#include "framework/config/training_stages.h"
#include "tests/framework/config_text.h"

namespace ringtrain::testing {
namespace {

Config staged(const std::string& stages) {
  return parse_config(with("training", "stages: " + stages), "x.yaml", {});
}

TEST(ConfigStages, AreReadAndWrittenBack) {
  const Config config = staged(
      "[{from_step: 3, seq_len: 128, rope_scaling: {type: yarn, factor: 2, original_max_position_embeddings: 64}}, "
      "{from_step: 8, seq_len: 1K, global_batch_size: 4, rope_theta: 2.5e5}]");
  ASSERT_EQ(config.training.stages.size(), 2u);
  EXPECT_EQ(config.training.stages[1].seq_len, 1024);
  const Config again = parse_config(to_yaml(config), "x.yaml", {});
  EXPECT_TRUE(differences(config, again).empty());
  EXPECT_EQ(to_yaml(again), to_yaml(config));
  EXPECT_EQ(config_of_stage(config, 0).training.seq_len, 64);
  const Config second = config_of_stage(config, 1), third = config_of_stage(config, 2);
  EXPECT_EQ(second.training.seq_len, 128);
  EXPECT_EQ(second.model.rope_scaling.type, RopeType::yarn);
  EXPECT_EQ(third.model.rope_scaling.factor, 2);  // unchanged
  EXPECT_EQ(third.model.rope_theta, 2.5e5);
  EXPECT_EQ(third.training.global_batch_size, 4);
}

TEST(ConfigStages, BeginAtTheirStep) {
  const Config config = staged("[{from_step: 3, seq_len: 128}, {from_step: 8, seq_len: 64, global_batch_size: 4}]");
  const TrainingConfig& training = config.training;
  std::vector<int> stages;
  for (std::int64_t step = 0; step <= 10; ++step) stages.push_back(stage_of_step(training, step));
  EXPECT_EQ(stages, (std::vector<int>{0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2}));
  EXPECT_EQ(last_step_of(training, 0), 2);
  EXPECT_EQ(first_step_of(training, 1), 3);
  EXPECT_EQ(last_step_of(training, 2), 10);
  EXPECT_EQ(longest_stage(training), 1);
  EXPECT_EQ(sequences_done(training, 9), 2 + 5 + 2 * 4);
  EXPECT_EQ(sequences_done(training, 9, 64), 2 + 2 * 4);
  EXPECT_EQ(tokens_done(training, 9), 2 * 64 + 5 * 128 + 2 * 4 * 64);
}

TEST(ConfigStages, AreRefusedWithASentence) {
  const auto said = [](const std::string& stages) { return complaint(with("training", "stages: " + stages)); };
  const auto expect = [&](const std::string& stages, const std::string& sentence) {
    EXPECT_NE(said(stages).find(sentence), std::string::npos) << stages << "\n" << said(stages);
  };
  expect("7", "must be a list of stages");
  expect("[7]", "a stage is a map");
  expect("[{seq_len: 128}]", "without from_step");
  expect("[{from_step: 1, seq_len: 128}]", "begin it at step 2 or later");
  expect("[{from_step: 4}, {from_step: 4}]", "must ascend, but from_step 4 follows 4");
  expect("[{from_step: 11, seq_len: 128}]", "is after the last step, training.steps = 10");
  expect("[{from_step: 4, seqlen: 128}]", "unknown key seqlen");
  expect("[{from_step: 4, seq_len: 0}]", "a stage whose seq_len");
  expect("[{from_step: 4, seq_len: 8, seq_len: 9}]", "gives seq_len twice");
  expect("[{from_step: 4, rope_scaling: {factor: 2}}]", "a rope_scaling without a type");
  expect("[{from_step: 4, rope_scaling: {type: yarn, factr: 2}}]", "unknown key rope_scaling.factr");
  expect("[{from_step: 4, rope_scaling: yarn}]", "it must be a map");
  EXPECT_EQ(said("[{from_step: 4, seq_len: 128}]"), "");
}

/// Returns a list with this many entries, with one of seven lengths each.
std::string many_stages(int count) {
  std::string list;
  for (int i = 0; i < count; ++i) {
    list += fmt::format("{}{{from_step: {}, seq_len: {}}}", i == 0 ? "" : ", ", i + 2, 64 + i % 7 * 16);
  }
  return "[" + list + "]";
}

TEST(ConfigStages, AThousandNeedNoMemoryForEachOther) {
  const auto text = [](int count, const std::string& data = "a.h5") {
    return "training: {seq_len: 64, steps: 5000, stages: " + many_stages(count) + "}\ndata: {train: " + data + "}\n";
  };
  EXPECT_NE(complaint(text(1001)).find("has 1001 stages, but at most 1000 are allowed"), std::string::npos);
  const std::string long_name = std::string(1 << 16, 'a') + ".h5";
  EXPECT_EQ(complaint(text(880, long_name)), "");
  EXPECT_NE(complaint(text(1000, long_name)).find("bytes of configs, but at most 67108864 are allowed"),
            std::string::npos);
  const Config config = parse_config(text(1000), "x.yaml", {});
  const std::vector<Config> stages = configs_of_stages(config);
  ASSERT_EQ(stages.size(), 1001u);
  for (int i = 0; i <= 1000; ++i) {
    const Config& stage = stages[static_cast<std::size_t>(i)];
    EXPECT_EQ(stage.training.stages.capacity(), 0u) << i;
    EXPECT_EQ(stage.training.seq_len, i == 0 ? 64 : 64 + (i - 1) % 7 * 16);
    EXPECT_EQ(config_of_stage(config, i).training.stages.capacity(), 0u) << i;
    EXPECT_TRUE(differences(stage, config_of_stage(config, i)).empty()) << i;
  }
}

}  // namespace
}  // namespace ringtrain::testing
