// Stages of a run: a length, batch, or rope that begins at a step. After being stopped or killed at any step near a
// boundary, the run has the bits of the uninterrupted one; later stages may change, those that have begun may not.

#include "framework/config/read_config.h"
#include "framework/config/training_stages.h"
#include "layers/model_parameters.h"
#include "tests/train/train_fixture.h"
#include "train/engine/rank_state.h"
#include "train/step/rope_check.h"

namespace ringtrain::testing {
namespace {

class Stages : public SplitTextTest {
 protected:
  /// 37 tokens, then 74 with YaRN from step 4, then 37 again with another base from step 7.
  Config staged(const std::vector<std::string>& settings = {}) const {
    return tiny(
        data, joined({"training.steps=9",
                      "training.global_batch_size=4",
                      "checkpoint.interval=1",
                      "checkpoint.keep=20",
                      {"training.stages=[{from_step: 4, seq_len: 74, global_batch_size: 2, rope_scaling: {type: yarn, "
                       "factor: 2.0, original_max_position_embeddings: 37}}, {from_step: 7, seq_len: 37, "
                       "global_batch_size: 6, rope_theta: 20000.0, rope_scaling: {type: none}}]"}},
                     settings));
  }
};

TEST_F(Stages, StoppedNextToABoundaryAreBitForBit) {
  for (const char* ring : {"mesh.sequence=1", "mesh.sequence=2"}) {
    SCOPED_TRACE(ring);
    const Config config = staged({ring});
    for (const std::int64_t stop : {2, 3, 4, 6, 7}) {  // before, at and after both boundaries
      SCOPED_TRACE(stop);
      expect_resumes(config, {stop}, fmt::format("{}-{}-", ring, stop));
    }
    ASSERT_EQ(losses(std::string(ring) + "-2-whole").size(), 9u);
  }
}

TEST_F(Stages, KilledNextToABoundaryAreBitForBit) {
  // A run that was killed has metrics of steps that no checkpoint has.
  for (const char* ring : {"mesh.sequence=1", "mesh.sequence=2"}) {
    const Config config = staged({ring});
    const std::string whole = std::string("whole") + ring, killed = std::string("killed") + ring;
    run(config, whole);
    run(config, killed);
    for (const std::int64_t last : {7, 6, 4, 3, 2}) {
      SCOPED_TRACE(last);
      for (std::int64_t step = last + 1; step <= 9; ++step) std::filesystem::remove_all(checkpoint(killed, step));
      run(config, killed, resumed());
      expect_same_bits(killed, whole);
    }
  }
}

TEST_F(Stages, TakeTheSamplesOfTheirLengthOneAfterTheOther) {
  run(staged(), "staged");
  run(tiny(data, {"training.steps=9", "training.global_batch_size=2"}), "short");
  run(tiny(data, {"training.steps=4", "training.global_batch_size=2", "training.seq_len=74"}), "long");
  const auto all = [&](const std::string& output, std::size_t begin, std::size_t end) {
    std::vector<std::int64_t> flat;
    const auto steps = samples(output);
    for (std::size_t i = begin; i < end; ++i) flat.insert(flat.end(), steps[i].begin(), steps[i].end());
    return flat;
  };
  // 3 steps of 4 short ones, 3 of 2 long ones, 3 of 6 short ones: the latter continue where the first stage ended.
  std::vector<std::int64_t> found = all("staged", 0, 3);
  const auto more = all("staged", 6, 7);
  found.insert(found.end(), more.begin(), more.end());
  EXPECT_EQ(found, all("short", 0, 9));
  EXPECT_EQ(all("staged", 3, 6), all("long", 0, 3));
  EXPECT_EQ(numbers("staged", "tokens"), (std::vector<double>{148, 296, 444, 592, 740, 888, 1110, 1332, 1554}));
  EXPECT_EQ(numbers("staged", "stage"), (std::vector<double>{1, 1, 1, 2, 2, 2, 3, 3, 3}));
  EXPECT_EQ(numbers("staged", "seq_len"), (std::vector<double>{37, 37, 37, 74, 74, 74, 37, 37, 37}));
}

TEST_F(Stages, ComputeWithTheirOwnLengthAndRope) {
  run(staged(), "staged");
  const StartRequest trained = from(checkpoint("staged", 3));
  const std::string yarn = "model.rope_scaling={type: yarn, factor: 2.0, original_max_position_embeddings: 37}";
  const std::vector<std::string> long_ones{"training.steps=1", "training.global_batch_size=2", "training.seq_len=74"};
  run(tiny(data, joined(long_ones, {yarn})), "scaled", trained);
  run(tiny(data, long_ones), "unscaled", trained);
  EXPECT_EQ(losses("scaled")[0], losses("staged")[3]);  // the same weights, samples and rotary positions
  EXPECT_NE(losses("unscaled")[0], losses("staged")[3]);
}

TEST_F(Stages, ToComeMayChangeAndThoseThatHaveBegunMayNot) {
  const Config config = staged();
  run(config, "run", {}, 5);
  Config other = config;
  other.training.stages[0].seq_len = 60;
  expect_error_holding(ExitCode::checkpoint,
                       {"up to step 5 they were [{from_step: 4, seq_len: 74", "only later stages may change"},
                       [&] { run(other, "run", resumed()); });
  other = config;
  other.training.stages.erase(other.training.stages.begin());
  error_of(ExitCode::checkpoint, [&] { run(other, "run", resumed()); });
  other = config;
  other.training.stages[1].from_step = 5;
  error_of(ExitCode::checkpoint, [&] { run(other, "run", resumed()); });
  other.training.stages[1].from_step = 6;
  other.training.stages[1].seq_len = 80;
  EXPECT_EQ(run(other, "run", resumed()).code, ExitCode::done);
  EXPECT_EQ(numbers("run", "seq_len"), (std::vector<double>{37, 37, 37, 74, 74, 80, 80, 80, 80}));
}

TEST_F(Stages, AreEvaluatedAtTheRunsOwnLengths) {
  const std::vector<std::string> evaluation{"evaluation.interval=1", "evaluation.context_lengths=[20, 60]",
                                            "evaluation.target_tokens=8", "evaluation.target_blocks=10"};
  run(staged(evaluation), "staged");
  run(tiny(data, joined(evaluation, {"training.steps=9", "training.global_batch_size=4"})), "plain", {}, 3);
  const auto staged_lines = metrics("staged", "evaluation"), plain_lines = metrics("plain", "evaluation");
  ASSERT_EQ(staged_lines.size(), 9u);
  ASSERT_EQ(plain_lines.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(staged_lines[i].at("results"), plain_lines[i].at("results"));
  for (std::size_t i = 0; i < 9; ++i) {
    ASSERT_EQ(staged_lines[i].at("results").size(), 2u);
    EXPECT_EQ(staged_lines[i].at("target_hash"), plain_lines[0].at("target_hash"));
    EXPECT_EQ(staged_lines[i].at("trained_length"), i >= 3 ? 74 : 37);
  }
}

TEST_F(Stages, HoldTheMemoryOfTheirLargest) {
  const Config config = staged(), longest = config_of_stage(config, 1);
  const auto peak = [](const Config& one) {
    return plan_ranks(one, make_parameter_table(one.model), training_purpose(one)).at(0).peak;
  };
  // The batches of the last stage are the largest, and short.
  EXPECT_EQ(peak(config)[Tag::workspace], peak(longest)[Tag::workspace]);
  EXPECT_GT(peak(config)[Tag::activations], peak(config_of_stage(config, 0))[Tag::activations]);
  EXPECT_GT(peak(config)[Tag::activations], peak(longest)[Tag::activations]);
  Config one_batch = config;
  for (TrainingStage& stage : one_batch.training.stages) stage.global_batch_size = 2;
  one_batch.training.global_batch_size = 2;
  EXPECT_EQ(peak(one_batch).by_tag, peak(longest).by_tag);
}

TEST_F(Stages, TheRopeIsCheckedBeforeTheFirstStepAndAtEachStage) {
  const std::vector<std::string> one{"training.steps=2", "training.global_batch_size=1"};
  run(tiny(data, {"training.steps=5"}), "base");
  const StartRequest base = from(checkpoint("base", 5));
  const auto told_by = [&](const Config& config, const std::string& output, const StartRequest& start) {
    ::testing::internal::CaptureStderr();
    run(config, output, start);
    return ::testing::internal::GetCapturedStderr();
  };
  EXPECT_FALSE(holds(told_by(tiny(data, one), "same", base), "check of the rope"));  // both ways are equivalent
  const std::string message = told_by(tiny(data, joined(one, {"model.rope_theta=50.0"})), "turned", base);
  const std::string expected = fmt::format(
      "the last 37 of 37 tokens is {:.4f} with this run's rope; with the original rope of the weights, and without the "
      "earlier tokens, it is {:.4f}",
      losses("turned")[0], losses("same")[0]);
  EXPECT_TRUE(holds(message, expected));
  EXPECT_NE(losses("turned")[0], losses("same")[0]);
  EXPECT_TRUE(holds(told_by(staged(), "staged", {}), "the last 37 of 74 tokens"));
}

TEST(RopeCheck, WarnsAboveOneNatWithBothSidesAndWhatToDo) {
  Config config = parse_config("training: {seq_len: 16K, steps: 1}\ndata: {train: a.h5}\n", "x.yaml", {});
  KnownRope known{.model = config.model, .length = 8192};
  EXPECT_EQ(rope_check_tokens(config, known), 2048);
  EXPECT_EQ(rope_warning({.tokens = 2048, .separate = 3, .behind = 3.99}, config, known), "");
  const std::string message = rope_warning({.tokens = 2048, .separate = 3, .behind = 5.5}, config, known);
  EXPECT_TRUE(holds_all(message, {"the rope looks wrong", "2.500 nats more than the 3.000",
                                  "type yarn, factor 2, original_max_position_embeddings 8192"}));
  config.training.seq_len = 2048;
  EXPECT_EQ(rope_check_tokens(config, known), 0);  // nothing differs
  config.model.rope_theta *= 2;
  EXPECT_EQ(rope_check_tokens(config, known), 2048);
  config.mesh.sequence = 4096;
  EXPECT_EQ(rope_check_tokens(config, known), 0);
}

}  // namespace
}  // namespace ringtrain::testing
