// The cost of a signal: a step and a save, both reported, and no evaluation: an evaluation that it interrupts is
// skipped or stopped, and the resumed run repeats it.
#include <csignal>

#include "tests/train/evaluation/evaluation_fixture.h"
#include "train/step/grace_time.h"

namespace ringtrain::testing {
namespace {

TEST(GraceTime, CoversTheLongestStepAndTheLongestSaves) {
  GraceTime background(true), foreground(false);
  for (GraceTime* one : {&background, &foreground}) {
    EXPECT_EQ(one->bound(), "");
    one->add_step(3);
    EXPECT_EQ(one->seconds(), 0);  // nothing is known about saves
    EXPECT_EQ(one->bound(), " takes up to 3.0s plus the time of the first save");
    one->add_step(2);
    one->add_save(0.5);
    one->add_save(0.25);
  }
  EXPECT_EQ(background.seconds(), 4);
  EXPECT_EQ(foreground.seconds(), 3.5);
  EXPECT_EQ(background.line(),
            "grace period: after SIGTERM this run needs up to 4.0s to save and end: 3.0s for a step, and 0.5s for each "
            "of two saves (the longest times so far)");
  EXPECT_EQ(foreground.line(),
            "grace period: after SIGTERM this run needs up to 3.5s to save and end: 3.0s for a step, and 0.5s for a "
            "save (the longest times so far)");
  EXPECT_EQ(background.bound(), " takes up to 4.0s");
}

class Grace : public SplitTextTest {
 protected:
  void SetUp() override {
    SplitTextTest::SetUp();
    settings = tiny(data, {"training.steps=6", "training.global_batch_size=2", "mesh.data=2", "mesh.sequence=2",
                           "checkpoint.interval=3", "evaluation.interval=2", "evaluation.context_lengths=[16,32]",
                           "evaluation.target_tokens=8", "evaluation.target_blocks=10"});
  }
  /// Runs with a signal in a step, 0: none. Returns the code and the text on stderr.
  std::pair<ExitCode, std::string> run_with_signal(const std::string& output, std::int64_t step, bool resume) const {
    ::testing::internal::CaptureStderr();
    const TrainOptions options{.config = settings, .output = at(output), .start = resume ? resumed() : StartRequest{}};
    const ExitCode code = run_with(options, [step](RankState& state, std::int64_t now) {
                            if (state.rank == 3 && now == step) ::raise(SIGTERM);
                          }).code;
    return {code, ::testing::internal::GetCapturedStderr()};
  }
  Config settings;
};

TEST_F(Grace, AnEvaluationThatASignalMeetsIsMadeUpForByResuming) {
  EXPECT_EQ(run_with_signal("whole", 0, false).first, ExitCode::done);
  ASSERT_EQ(metrics("whole", "evaluation").size(), 3u);
  // In the middle of the run, and in its last step, when only the evaluation remains.
  for (const std::int64_t step : {4, 6}) {
    const std::string output = fmt::format("signal at {}", step);
    settings.checkpoint.background = step == 6;
    const auto [code, text] = run_with_signal(output, step, false);
    EXPECT_EQ(code, ExitCode::terminated) << text;
    EXPECT_EQ(metrics(output).size(), static_cast<std::size_t>(step));
    EXPECT_EQ(metrics(output, "evaluation").size(), static_cast<std::size_t>(step) / 2 - 1);
    const std::size_t grace = text.find("grace period: after SIGTERM this run needs up to ");
    EXPECT_TRUE(grace < text.rfind("saved ") || (step == 6 && grace == text.npos)) << text;  // not after the last save
    EXPECT_EQ(run_with_signal(output, 0, true).first, ExitCode::done);
    EXPECT_EQ(evaluations(output), evaluations("whole"));
    expect_same_bits(output, "whole");
    // It is repeated only once.
    EXPECT_EQ(run_with_signal(output, 0, true).first, ExitCode::done);
    EXPECT_EQ(metrics(output, "evaluation").size(), 3u);
  }
}

TEST_F(Grace, AnEvaluationBrokenOffLeavesNothingOfItself) {
  const auto file = TokenFile::open(data);
  const EvaluationRequest request{{16, 32}, 8, 9};  // uneven over the data ranks
  const EvaluationTargets targets = choose_targets(*file, request);
  on_ranks(settings, request.context_lengths, [&](RankState& state) {
    initialize_weights(state.stream, state.parameters, 3);
    const auto evaluate = [&](int looks) {
      return evaluate_targets(state, *file, targets, nullptr, [&] { return --looks < 0; });
    };
    const auto expected = evaluate(1000);
    ASSERT_TRUE(expected.has_value());
    for (const int looks : {0, 1, 4, 7}) {
      EXPECT_FALSE(evaluate(looks).has_value());
      const auto again = evaluate(1000);
      ASSERT_TRUE(again.has_value());
      for (std::size_t i = 0; i < again->size(); ++i) EXPECT_EQ((*again)[i].nll.value, (*expected)[i].nll.value);
    }
    EXPECT_EQ(state.model->take_loss_sum(), 0);
  });
}

}  // namespace
}  // namespace ringtrain::testing
