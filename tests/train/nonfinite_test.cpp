// A loss or gradient that is not finite, injected on only one rank of 2 x 2: all ranks see it in the same step; stop or
// skip; weights and moments unchanged; no checkpoint of a bad state. And the rule for loss spikes.
#include <cmath>
#include <set>

#include "tests/train/train_fixture.h"
#include "train/checkpoint/checkpoint_folder.h"
#include "train/engine/rank_state.h"
#include "train/step/step_trend.h"

namespace ringtrain::testing {
namespace {

/// The fault on rank 3 of 4.
struct Injection {
  const char* name;
  double value;
  bool in_loss;  // otherwise in one element of the gradients that the rank sums
};

class Nonfinite : public TextTest, public ::testing::WithParamInterface<Injection> {
 protected:
  Config config(const std::vector<std::string>& more = {}) const {
    return tiny(data, joined({"training.global_batch_size=4", "training.steps=9", "checkpoint.interval=2",
                              "mesh.data=2", "mesh.sequence=2", "checkpoint.keep=20"},
                             more));
  }
  /// Trains with the injection in these steps.
  Outcome run_broken(const Config& settings, const std::string& output, const std::set<std::int64_t>& steps,
                     const StartRequest& start = {}) const {
    const auto inject = [&steps, injection = GetParam()](RankState& state, std::int64_t step) {
      if (state.rank != 3 || !steps.contains(step)) return;
      if (injection.in_loss) {
        state.batch.weights().as<double>()[0] = injection.value;
        state.batch.labels().as<std::int32_t>()[0] = 1;
      } else {
        // Of a step's two micro-batches, the first sets the gradient, and the second adds to it, including this
        // element.
        state.parameters.gradients(state.parameters.slices().back()).as<double>()[0] = injection.value;
      }
    };
    return run_with({.config = settings, .output = at(output), .start = start}, inject);
  }
};

using BadState = TextTest;
using BadWeights = TextTest;

TEST_P(Nonfinite, StopEndsAllRanksInThatStepWithTheStateBeforeIt) {
  run(config(), "whole");
  expect_error_holding(ExitCode::numeric,
                       {"step 5: the loss is", "still those of step 4, the last checkpoint, of step 4, is intact"},
                       [&] { run_broken(config(), "run", {5}); });
  const std::string first = error_of(ExitCode::numeric, [&] { run_broken(config(), "none", {1}); });
  EXPECT_TRUE(holds(first, "nothing was saved yet"));
  EXPECT_FALSE(holds(first, "checkpoint"));
  EXPECT_EQ(numbers("run", "step"), (std::vector<double>{1, 2, 3, 4}));
  EXPECT_EQ(saved_step("run"), 4);  // even if its save was still in progress
  run(config(), "run", resumed());
  expect_same_bits("run", "whole");
}

TEST_P(Nonfinite, SkipLeavesWeightsAndMomentsAndCounts) {
  const Config skip = config({"training.on_nonfinite=skip", "training.max_skipped_steps=2", "checkpoint.interval=1",
                              "checkpoint.background=false"});
  const Outcome outcome = run_broken(skip, "run", {4, 5, 8});
  EXPECT_EQ(outcome.code, ExitCode::done);
  EXPECT_EQ(state(checkpoint("run", 4)), state(checkpoint("run", 3)));
  EXPECT_EQ(state(checkpoint("run", 5)), state(checkpoint("run", 3)));
  EXPECT_NE(state(checkpoint("run", 6)), state(checkpoint("run", 5)));
  EXPECT_EQ(state(checkpoint("run", 8)), state(checkpoint("run", 7)));
  EXPECT_EQ(numbers("run", "skipped_steps"), (std::vector<double>{0, 0, 0, 1, 2, 2, 2, 3, 3}));
  for (const auto& line : metrics("run")) {
    const std::int64_t step = line.at("step");
    EXPECT_EQ(line.at("loss").is_null() || line.at("grad_norm").is_null(), step == 4 || step == 5 || step == 8);
  }
  EXPECT_EQ(open_checkpoint(at("run")).manifest.skipped_steps, 3);
}

TEST_P(Nonfinite, ASkippedStepIsOneThatNeverWasButForItsSamples) {
  // Step 5 is skipped: the next update is the fifth, with the rate and the samples of step 6. Also across a resume.
  const Config skip = config({"training.on_nonfinite=skip", "lr_scheduler.type=constant"});
  run_broken(skip, "whole", {5});
  run_broken(config({"training.on_nonfinite=skip", "lr_scheduler.type=constant", "training.steps=6"}), "parts", {5});
  EXPECT_EQ(open_checkpoint(at("parts")).manifest.skipped_steps, 1);
  run(skip, "parts", resumed());
  EXPECT_EQ(numbers("parts", "skipped_steps"), (std::vector<double>{0, 0, 0, 0, 1, 1, 1, 1, 1}));
  EXPECT_EQ(state(checkpoint("parts", 9)), state(checkpoint("whole", 9)));
}

TEST_P(Nonfinite, MoreThanTheLimitInARowEndTheRun) {
  const Config skip = config({"training.on_nonfinite=skip", "training.max_skipped_steps=2"});
  expect_error_holding(ExitCode::numeric,
                       {"step 7", "3 in a row; training.max_skipped_steps is 2)", "still those of step 4"}, [&] {
                         run_broken(skip, "run", {2, 3, 5, 6, 7});
                       });
}

TEST_P(Nonfinite, SaysWhatItKnowsAndNoMore) {
  const Injection injection = GetParam();
  // Before the first update, the rate is not the cause; and no shuffled list has a "from" and a "to".
  const std::string first = error_of(ExitCode::numeric, [&] { run_broken(config(), "first", {1}); });
  EXPECT_FALSE(holds(first, "optimizer.lr"));
  EXPECT_TRUE(
      holds(first, "nothing was saved yet; no update was made yet: look at model.initializer_range, or at samples"));
  const std::string fifth = error_of(ExitCode::numeric, [&] { run_broken(config(), "run", {5}); });
  run(config(), "whole");
  const auto samples = metrics("whole")[4].at("samples").get<std::vector<std::int64_t>>();
  EXPECT_TRUE(holds(fifth, fmt::format("; lower optimizer.lr, or look at samples {}, {}, {}, {}", samples[0],
                                       samples[1], samples[2], samples[3])));
  // Weights of another run, in which they were good: the cause is neither the rate nor initial values.
  const StartRequest others = from(at("whole"));
  const std::string with = error_of(ExitCode::numeric, [&] { run_broken(config(), "with", {1}, others); });
  EXPECT_TRUE(holds(with, "no update was made yet: look at the weights of " + at("whole")));
  EXPECT_FALSE(holds(with, "optimizer.lr"));
  for (const std::string& one : {first, fifth, with}) {
    EXPECT_FALSE(holds(one, "-nan"));
    EXPECT_TRUE(!std::isnan(injection.value) || one.find("nan") != std::string::npos) << one;
  }
}

TEST_F(BadWeights, AreNamedWithWhatMadeThem) {
  const Config settings = tiny(data, {"training.steps=4", "training.global_batch_size=2", "mesh.data=2"});
  // From step `first` on, a weight that rank 1 owns is NaN: from the start, or after updates.
  const auto sentence_of = [&](const std::string& output, std::int64_t first, const StartRequest& start) {
    const auto spoil = [first](RankState& state, std::int64_t step) {
      if (step == first && state.rank == 1)
        state.optimizer->weights(state.optimizer->slices().back()).as<double>()[0] = NAN;
    };
    return error_of(ExitCode::numeric,
                    [&] { run_with({.config = settings, .output = at(output), .start = start}, spoil); });
  };
  const std::string initial = sentence_of("initial", 1, {});
  EXPECT_TRUE(holds_all(initial, {"; weights/",
                                  "holds a value that is not finite, and the weights are the initial ones: lower "
                                  "model.initializer_range; nothing was saved yet"}));
  EXPECT_FALSE(holds(initial, "optimizer.lr"));
  const std::string later = sentence_of("later", 3, {});
  EXPECT_TRUE(holds(later, "an earlier update overflowed: lower optimizer.lr; nothing was saved yet"));
  run(settings, "good");
  const std::string others = sentence_of("with", 1, from(at("good")));
  EXPECT_TRUE(holds(others, "and the weights are those of " + at("good")));
}

TEST_F(BadWeights, OfAnEvaluationLeaveThePendingSaveIntact) {
  const Config settings =
      tiny(data, {"model.architecture=gpt2", "model.max_position_embeddings=64", "training.steps=4",
                  "training.seq_len=16", "checkpoint.interval=1", "evaluation.interval=2",
                  "evaluation.context_lengths=[64]", "evaluation.target_tokens=8", "evaluation.on_training_data=true"});
  const auto spoil = [](RankState& state, std::int64_t step) {
    for (const ParameterSlice& slice : state.optimizer->slices()) {
      if (step != 2 || !holds(state.parameters.table()[slice.parameter].name, "embed_positions")) continue;
      const TensorView weights = state.optimizer->weights(slice);  // the last positions occur only in the evaluation
      weights.as<double>()[weights.numel() - 1] = NAN;
    }
  };
  expect_error_holding(ExitCode::numeric, {"at context length 64, the loss is nan", "of step 1, is intact"},
                       [&] { run_with({.config = settings, .output = at("run")}, spoil); });
}

INSTANTIATE_TEST_SUITE_P(OnRank3, Nonfinite,
                         ::testing::Values(Injection{"NanLoss", NAN, true}, Injection{"InfLoss", INFINITY, true},
                                           Injection{"NanGradient", NAN, false},
                                           Injection{"MinusInfGradient", -INFINITY, false}),
                         [](const auto& one) { return std::string(one.param.name); });

TEST_F(BadState, IsNeverSaved) {
  // An update that overflows: finite gradients, a finite loss, and weights that are no longer finite.
  for (const auto* policy : {"checkpoint.on_failure=stop", "checkpoint.on_failure=warn"}) {
    std::filesystem::remove_all(at("run"));
    const Config config = tiny(
        data, {"training.steps=4", "training.global_batch_size=2", "checkpoint.interval=1", "mesh.data=2", policy});
    const auto spoil = [](RankState& state, std::int64_t step) {
      if (step != 3 || state.rank != 1) return;
      const ParameterSlice& own = state.optimizer->slices().back();
      state.optimizer->state(1, own).as<double>()[0] = INFINITY;  // its update is 0 from now on, silently
    };
    const auto spoiled = [&] { run_with({.config = config, .output = at("run")}, spoil); };
    expect_error_holding(ExitCode::numeric,
                         {"step 3: second_moment/", "the last checkpoint, of step 2, is intact; lower optimizer.lr"},
                         spoiled);
    EXPECT_EQ(saved_step("run"), 2);
  }
}

TEST(StepTrend, DistinguishesASpikeFromNoiseAndFromASlope) {
  const auto spike = [](StepTrend& trend, double loss) { return trend.add(loss, 1).loss_spike; };
  StepTrend spikes;
  for (int i = 0; i < 19; ++i) EXPECT_EQ(spike(spikes, 2.0 + 0.01 * (i % 5)), "");
  EXPECT_EQ(spike(spikes, 100), "") << "fewer than 20 before it";
  StepTrend steady;
  for (int i = 0; i < 60; ++i) EXPECT_EQ(spike(steady, 2.0 + 0.02 * (i % 5)), "");
  EXPECT_EQ(spike(steady, 2.3), "") << "more than 6 deviations, but less than a fifth of the mean";
  EXPECT_TRUE(holds(spike(steady, 3.0), "3.0000, where the mean of the last 50"));
  EXPECT_EQ(spike(steady, 2.04), "");
  EXPECT_EQ(steady.add(30, std::nan("")).loss_spike, "") << "a skipped step has its own warning";
  StepTrend slope;
  for (int i = 0; i < 300; ++i) EXPECT_EQ(spike(slope, 4.0 * std::exp(-0.02 * i) + 1), "") << i;
  StepTrend noisy;
  for (int i = 0; i < 300; ++i) EXPECT_EQ(spike(noisy, 2 + std::sin(1.7 * i)), "") << "half of the mean up and down";
  int reported = 0;
  for (int i = 0; i < 60; ++i) reported += spike(noisy, 30).empty() ? 0 : 1;
  EXPECT_GE(reported, 1);
  EXPECT_LE(reported, 3) << "a loss that stays high is reported once or a few times";
}

}  // namespace
}  // namespace ringtrain::testing
