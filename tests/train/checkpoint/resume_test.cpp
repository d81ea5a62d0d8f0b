// A run that was saved and resumed equals the uninterrupted run: bit for bit on one mesh, to rounding on another, with
// the same samples, also across the ends of epochs.
#include <numeric>

#include "tests/train/train_fixture.h"

#include "layers/model_spec.h"
#include "train/checkpoint/checkpoint_folder.h"

namespace ringtrain::testing {
namespace {

class Resume : public TextTest {
 protected:
  std::vector<double> steps(const std::string& output) const { return numbers(output, "step"); }
  std::vector<nlohmann::json> trend(const std::string& output) const {
    std::vector<nlohmann::json> all;
    for (const auto& line : metrics(output)) {
      all.push_back({line.value("loss_z", nlohmann::json()), line.value("grad_norm_z", nlohmann::json())});
      EXPECT_EQ(all.back()[0].is_number(), all.size() > 20) << output << " " << all.size();
    }
    return all;
  }
  static std::vector<double> counted(std::int64_t last) {
    std::vector<double> all(static_cast<std::size_t>(last));
    std::iota(all.begin(), all.end(), 1);
    return all;
  }
  /// Returns how often a run took each sample.
  std::map<std::int64_t, int> times_seen(const std::string& output) const {
    std::map<std::int64_t, int> seen;
    for (const auto& step : samples(output))
      for (const std::int64_t sample : step) ++seen[sample];
    return seen;
  }
  static ModelConfig config_of(Architecture architecture) {
    ModelConfig config;
    config.architecture = architecture;
    config.num_key_value_heads = config.num_attention_heads;
    config.head_dim = 64;
    config.max_position_embeddings = 1;
    return config;
  }
};

TEST_F(Resume, ThirtyAndThirtyStepsAreSixtyBitForBit) {
  // About 4,500 tokens: 122 windows. Sixty steps of 6 sequences are three epochs; each stop is in another one, and the
  // stop after step 20 (120 sequences) is one step before the first epoch's end.
  const Config config = tiny(data, {"training.steps=60", "training.global_batch_size=6", "mesh.data=2",
                                    "mesh.sequence=2", "checkpoint.interval=7"});
  expect_resumes(config, {20, 21, 30, 47});
  EXPECT_EQ(steps("parts"), counted(60));
  EXPECT_EQ(trend("parts"), trend("whole"));  // how a step compares with earlier steps, including those before a stop
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_EQ(content_of(state_file(checkpoint("parts", 60), rank, 4)),
              content_of(state_file(checkpoint("whole", 60), rank, 4)));
  }

  // The run did cross an epoch's end: each window occurs once in every epoch, and some occur three times in all.
  const auto seen = times_seen("whole");
  EXPECT_GT(seen.size(), 100u);
  EXPECT_LT(seen.size(), 180u);
  for (const auto& [sample, times] : seen) EXPECT_GE(times, 2) << sample;
}

TEST_F(Resume, OfEveryArchitectureIsBitForBit) {
  for (const Architecture architecture : all_architectures) {
    const std::string name = name_of(architecture);
    SCOPED_TRACE(name);
    std::vector<std::string> settings{"training.steps=8", "mesh.sequence=2", "checkpoint.interval=3",
                                      "model.architecture=" + name};
    if (model_spec(config_of(architecture)).positions == Positions::learned) {
      settings.emplace_back("model.max_position_embeddings=37");
    }
    const Config config = tiny(data, settings);
    expect_resumes(config, {4}, name);
    EXPECT_EQ(open_checkpoint(checkpoint(name + "whole", 8)).manifest.model.architecture, name);
  }
}

TEST_F(Resume, AtTheExactEndOfAnEpoch) {
  // The number of sequences per step is such that an epoch takes about four steps: the stop is within the step that
  // ends it.
  const Config probe = tiny(data, {"training.global_batch_size=6"});
  const TrainOptions options{.config = probe, .output = at("probe")};
  const std::int64_t windows = prepare_run(options, quiet).samplers.at(probe.training.seq_len).windows();
  std::int64_t divisor = 2;
  while (windows % divisor != 0 && divisor < windows) ++divisor;
  const std::int64_t batch = windows / divisor;
  const Config config =
      tiny(data, {fmt::format("training.global_batch_size={}", batch), fmt::format("training.steps={}", 3 * divisor)});
  expect_resumes(config, {divisor, 2 * divisor});  // one epoch, and another
  const auto seen = times_seen("whole");
  EXPECT_EQ(static_cast<std::int64_t>(seen.size()), windows);
  for (const auto& [sample, times] : seen) EXPECT_EQ(times, 3) << sample;  // epochs are exact
}

TEST_F(Resume, OnAnotherMeshGoesOnWithTheSameSamplesAndLosses) {
  const std::vector<std::string> common{"training.global_batch_size=8", "training.steps=40"};
  const auto on = [&](int data_ranks, int sequence, const std::string& layout) {
    return tiny(data, joined(joined(common, mesh_of(data_ranks, sequence)), {"mesh.layout=" + layout}));
  };
  run(on(2, 2, "zigzag"), "whole");
  run(on(2, 2, "zigzag"), "saved", {}, 20);
  const auto reference = losses("whole");
  for (const auto& [data_ranks, sequence, layout] :
       {std::tuple{1, 4, "striped"}, {4, 1, "contiguous"}, {1, 1, "zigzag"}}) {
    const std::string name = fmt::format("{}x{}", data_ranks, sequence);
    SCOPED_TRACE(name);
    const Outcome outcome = run(on(data_ranks, sequence, layout), name, resumed(checkpoint("saved", 20)));
    if (std::string_view(layout) != "zigzag") {
      EXPECT_NE(outcome.logged("mesh.layout was zigzag"), "");
    }
    const auto found = losses(name);
    ASSERT_EQ(found.size(), 20u);
    for (std::size_t i = 0; i < 20; ++i) EXPECT_NEAR(found[i], reference[20 + i], 1e-9 * reference[20 + i]);
    const auto expected = samples("whole");
    EXPECT_EQ(samples(name), (std::vector<std::vector<std::int64_t>>(expected.begin() + 20, expected.end())));
    expect_same_state(state(checkpoint(name, 40)), state(checkpoint("whole", 40)), "weights/", 1e-9);
  }
}

TEST_F(Resume, CutsSupersededMetricsAndMovesLaterCheckpointsAside) {
  const Config config = tiny(data, {"training.global_batch_size=4", "training.steps=12", "checkpoint.interval=4"});
  run(config, "run");
  ASSERT_EQ(steps("run"), counted(12));
  const auto before = losses("run");
  const Outcome outcome = run(config, "run", resumed(checkpoint("run", 4)), 6);
  EXPECT_EQ(steps("run"), counted(6));
  EXPECT_NE(outcome.logged("step-00000012.superseded"), "");
  EXPECT_EQ(saved_steps("run"), (std::vector<std::int64_t>{4, 6}));
  run(config, "run", resumed());
  EXPECT_EQ(steps("run"), counted(12));
  EXPECT_EQ(losses("run"), before);
}

TEST_F(Resume, AllowedChangesAreNotedAndForbiddenOnesRefusedWithBothValues) {
  const std::vector<std::string> few{"training.global_batch_size=4", "training.steps=4"};
  run(tiny(data, few), "run", {}, 2);
  const auto changed = [&](const std::vector<std::string>& settings) { return tiny(data, joined(few, settings)); };
  for (const auto& [setting, key, before, after] :
       {std::tuple{"training.seq_len=31", "training.seq_len", "37", "31"},
        {"model.vocab_size=29", "model.vocab_size", "23", "29"},
        {"model.hidden_size=32", "model.hidden_size", "16", "32"},
        {"training.global_batch_size=8", "training.global_batch_size", "4", "8"},
        {"training.seed=5", "training.seed", "1234", "5"},
        {"training.dtype=float32", "training.dtype", "float64", "float32"},
        {"data.packing=concat", "data.packing", "documents", "concat"}}) {
    const std::string metrics_before = content_of(at("run") + "/metrics.jsonl");
    expect_error_holding(ExitCode::checkpoint, {fmt::format("{} was {} and is now {}", key, before, after)},
                         [&] { run(changed({setting}), "run", resumed()); });
    EXPECT_EQ(content_of(at("run") + "/metrics.jsonl"), metrics_before);
  }
  TextPlan other;
  other.seed = 2;
  expect_error(ExitCode::checkpoint, "data",
               [&] { run(tiny(write_tokens("other.h5", other), few), "run", resumed()); });

  const Outcome outcome =
      run(changed({"training.steps=6", "training.recompute=full", "optimizer.lr=2e-2", "training.loss_chunk=64"}),
          "run", resumed());
  EXPECT_NE(outcome.logged("training.steps was 4 and is now 6"), "");
  EXPECT_NE(outcome.logged("optimizer.lr was 0.01 and is now 0.02"), "");
  EXPECT_NE(outcome.logged("training.recompute was keep_attention and is now full"), "");
  EXPECT_EQ(steps("run"), counted(6));
}

TEST_F(Resume, WithoutACheckpointStartsAfreshAndSaysSo) {
  const Config config = tiny(data, {"training.steps=2", "training.global_batch_size=2"});
  EXPECT_NE(run(config, "run", resumed()).logged("starting afresh"), "");
  EXPECT_EQ(steps("run"), counted(2));
  EXPECT_NE(run(config, "run", resumed()).logged("nothing is left to do"), "");
  error_of(ExitCode::usage, [&] { run(config, "run"); });  // it has a run
}

TEST_F(Resume, InitFromTakesOnlyWeightsAndMayChangeLengthAndRopeScaling) {
  run(tiny(data, {"training.steps=5"}), "short");
  const Config longer =
      tiny(data, {"training.seq_len=74", "training.steps=1", "optimizer.lr=0", "model.rope_scaling.type=linear",
                  "model.rope_scaling.factor=2", "training.global_batch_size=4"});
  run(longer, "long", from(at("short")));  // a run's folder: its newest checkpoint
  EXPECT_EQ(steps("long"), counted(1));
  const auto before = state(checkpoint("short", 5)), after = state(checkpoint("long", 1));
  for (const auto& [name, values] : before) {
    if (!name.starts_with("weights/")) continue;
    EXPECT_EQ(after.at(name), values) << name;  // a rate of 0 keeps them
  }
  expect_error_holding(ExitCode::checkpoint, {"model.num_hidden_layers was 2 and is now 3"},
                       [&] { run(tiny(data, {"model.num_hidden_layers=3"}), "deeper", from(at("short"))); });
}

}  // namespace
}  // namespace ringtrain::testing
