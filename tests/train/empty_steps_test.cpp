// Steps whose batch has no target: counted before the run starts, and skipped with a warning; rates and samples
// continue as if the steps did not exist.
#include "train/run/empty_steps.h"

#include <algorithm>
#include <set>

#include "data/token_file_writer.h"
#include "tests/train/train_fixture.h"
#include "train/check/check.h"
#include "train/step/schedule.h"

namespace ringtrain::testing {
namespace {

class EmptyStepsTest : public TrainTest {
 protected:
  static constexpr std::int64_t seq_len = 10, windows = 12, steps = 18;

  /// Writes a token file of `windows` windows, in which the given ones have only weights of 0.
  void write_with_empty(const std::set<std::int64_t>& empty) const {
    TokenFilePlan plan;
    plan.vocab_size = 23;
    plan.tokens = windows * seq_len + 1;
    plan.documents = plan.first_validation_document = 1;
    plan.weights = true;
    TokenFileWriter writer(at("weighted.h5"), plan);
    for (std::int64_t t = 0; t + 1 < plan.tokens; ++t) {
      const auto token = static_cast<std::int32_t>((t * 7 + t / 5) % 22);
      // The weight of a token applies to its prediction, from the previous token.
      const float weight = t > 0 && empty.contains((t - 1) / seq_len) ? 0.0f : 1.0f;
      writer.append({&token, 1}, {&weight, 1});
    }
    writer.end_document(empty.contains(windows - 1) ? 0.0f : 1.0f);
    writer.finish();
  }
  Config config(const std::vector<std::string>& more = {}) const {
    return tiny(at("weighted.h5"),
                joined({"training.seq_len=10", "training.global_batch_size=1", fmt::format("training.steps={}", steps),
                        "checkpoint.interval=1", "checkpoint.keep=100"},
                       more));
  }
  ringtrain::Run prepared(const Config& settings, const Log& log = quiet) const {
    return prepare_run({.config = settings, .output = at("unused")}, log);
  }
  /// Returns the steps of a run whose sequences are all in these windows.
  static std::set<std::int64_t> empty_steps(const ringtrain::Run& run, const std::set<std::int64_t>& empty) {
    std::set<std::int64_t> found;
    for (std::int64_t step = 1; step <= run.config.training.steps; ++step) {
      const auto samples = run.sample_indices(step);
      if (std::ranges::all_of(samples, [&](std::int64_t one) { return empty.contains(one); })) found.insert(step);
    }
    return found;
  }
  /// Returns settings with which step 1 is empty.
  Config config_with_empty_first(const std::set<std::int64_t>& empty) const {
    for (int seed = 1; seed < 1000; ++seed) {
      Config settings = config({fmt::format("training.seed={}", seed)});
      if (empty_steps(prepared(settings), empty).contains(1)) return settings;
    }
    ADD_FAILURE() << "no seed begins with an empty window";
    return config();
  }
  /// Returns the lines of a run without its times; NaN is written as null.
  std::vector<nlohmann::json> lines(const std::string& output) const {
    std::vector<nlohmann::json> found = metrics(output);
    for (nlohmann::json& line : found)
      for (const char* field : {"time", "seconds", "tokens_per_second", "ring_wait_seconds", "peak_bytes", "started"})
        line.erase(field);
    return found;
  }
};

TEST_F(EmptyStepsTest, AreSkippedCountedAndForeseen) {
  const std::set<std::int64_t> empty{1, 4, 5, 11};
  write_with_empty(empty);
  for (const auto* mesh : {"mesh.sequence=1", "mesh.sequence=2"}) {
    const Config settings = config({mesh});
    Outcome start;
    const ringtrain::Run ready = prepared(settings, [&](const std::string& line) { start.logs.push_back(line); });
    const std::set<std::int64_t> expected = empty_steps(ready, empty);
    ASSERT_GE(expected.size(), 4u);
    EXPECT_EQ(ready.empty_steps.windows, windows);
    EXPECT_EQ(ready.empty_steps.empty_windows, 4);
    EXPECT_EQ(ready.empty_steps.count, std::ssize(expected));
    EXPECT_EQ(
        ready.empty_steps.named,
        std::vector<std::int64_t>(expected.begin(), std::next(expected.begin(), std::ssize(ready.empty_steps.named))));
    const std::string foreseen = fmt::format(
        "no token to learn from in 4 of 12 windows (weights of 0, or documents of one token); steps with no other "
        "window are skipped, {} of steps 1 to 18: {}, ",
        expected.size(), *expected.begin());
    EXPECT_NE(start.logged(foreseen), "") << foreseen;
    EXPECT_TRUE(holds(dry_run_report(ready), foreseen));

    const std::string output = mesh;
    const Outcome outcome = run(settings, output);
    EXPECT_EQ(outcome.code, ExitCode::done);
    std::int64_t skipped = 0;
    for (const auto& line : metrics(output)) {
      const std::int64_t step = line.at("step");
      const bool is_empty = expected.contains(step);
      skipped += is_empty ? 1 : 0;
      EXPECT_EQ(line.contains("empty"), is_empty) << line;
      EXPECT_EQ(line.at("loss").is_null(), is_empty) << line;
      EXPECT_EQ(line.at("grad_norm").is_null(), is_empty) << line;
      EXPECT_EQ(line.at("skipped_steps"), skipped) << line;
      EXPECT_EQ(line.at("samples"), nlohmann::json(ready.sample_indices(step))) << line;
      EXPECT_EQ(line.at("lr"), learning_rate(settings.lr_scheduler, settings.optimizer.lr, steps, step)) << line;
      if (step == 1) continue;
      EXPECT_EQ(state(checkpoint(output, step)) == state(checkpoint(output, step - 1)), is_empty) << step;
    }
    EXPECT_EQ(metrics(output).size(), static_cast<std::size_t>(steps));
    EXPECT_EQ(open_checkpoint(checkpoint(output, steps)).manifest.skipped_steps, std::ssize(expected));
  }
}

TEST_F(EmptyStepsTest, AreWarnedOfAtEachOne) {
  const std::set<std::int64_t> empty{0, 2, 3, 6, 8, 9, 10};
  write_with_empty(empty);
  const Config settings = config_with_empty_first(empty);
  const std::set<std::int64_t> expected = empty_steps(prepared(settings), empty);
  ::testing::internal::CaptureStderr();
  run(settings, "run");
  const std::string printed = ::testing::internal::GetCapturedStderr();
  for (std::int64_t step = 1; step <= steps; ++step) {
    const std::string warning = fmt::format("warning: step {}: its sequence does not have a token to learn from", step);
    EXPECT_EQ(printed.find(warning) != std::string::npos, expected.contains(step)) << warning;
  }
}

TEST_F(EmptyStepsTest, RatesAndSamplesGoOnAlsoAcrossAResume) {
  const std::set<std::int64_t> empty{1, 4, 5, 7, 11};
  write_with_empty(empty);
  const Config settings = config_with_empty_first(empty);
  const std::set<std::int64_t> expected = empty_steps(prepared(settings), empty);
  run(settings, "whole");
  const std::int64_t second = *std::next(expected.begin());
  std::int64_t begun = 0;
  for (const std::int64_t stop : {std::int64_t{1}, second, second + 1}) {
    if (stop == begun) continue;
    const Outcome outcome = run(settings, "parts", begun > 0 ? resumed() : StartRequest{}, stop);
    EXPECT_EQ(outcome.code, ExitCode::done) << "also if no step but an empty one was asked for";
    EXPECT_EQ(saved_step("parts"), stop);
    begun = stop;
  }
  const Outcome rest = run(settings, "parts", resumed());
  EXPECT_NE(rest.logged(fmt::format("of steps {} to {}: ", begun + 1, steps)), "") << "to the end";
  EXPECT_EQ(lines("parts"), lines("whole"));
  EXPECT_EQ(state(checkpoint("parts", steps)), state(checkpoint("whole", steps)));
}

TEST_F(EmptyStepsTest, AreNoneWhereABatchHasOneTarget) {
  const std::set<std::int64_t> empty{1, 4, 5, 7, 11};
  write_with_empty(empty);
  const ringtrain::Run ready = prepared(config({"training.global_batch_size=6", "training.steps=4"}));
  EXPECT_EQ(empty_steps(ready, empty).size(), 0u);
  EXPECT_TRUE(holds(dry_run_report(ready), "each of steps 1 to 4 also has other windows"));
  const Outcome outcome = run(ready.config, "run");
  EXPECT_EQ(open_checkpoint(at("run")).manifest.skipped_steps, 0);
}

TEST_F(EmptyStepsTest, ThatAreAllAreRefusedAtTheStart) {
  write_with_empty({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  expect_error_holding(ExitCode::data, {"no window of 10 tokens has a token to learn from"},
                       [&] { prepared(config()); });
}

TEST_F(EmptyStepsTest, AreNoUpdatesForACheckOfALaterStep) {
  write_with_empty({2, 5});
  const Config settings = config_with_empty_first({2, 5});
  EXPECT_FALSE(check_run({.train = {.config = settings, .dump = {at("dump"), 2}}}, quiet).first());
}

TEST_F(EmptyStepsTest, CannotBeDumped) {
  const std::set<std::int64_t> empty{1, 4, 5, 7, 11};
  write_with_empty(empty);
  const Config settings = config_with_empty_first(empty);
  expect_error_holding(ExitCode::usage, {"--dump-step 1: the step has no token to learn from"}, [&] {
    prepare_run({.config = settings, .output = at("run"), .dump = {.folder = at("dump"), .step = 1}}, quiet);
  });
}

}  // namespace
}  // namespace ringtrain::testing
