// Faults among ranks that are processes, started by scripts/launch: one of 4 is killed, stopped, slowed, or diverges,
// in forward, backward, gradient reduction, a save, and an evaluation. The run ends with code 6 and one report within
// the timeout and 5 seconds (or continues, if slowed), and leaves no process behind. RINGTRAIN_TORTURE_TRIALS=N
// replaces the few fixed trials by N random ones (scripts/torture ranks).
#include <array>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <random>
#include <regex>

#include "tests/train/launch_fixture.h"

namespace ringtrain::testing {
namespace {

constexpr int processes = 4;
constexpr double timeout_seconds = 3, slack_seconds = 5;

// --- One rank fails.

struct Trial {
  std::string place, operation;
  int count = 1, rank = 0;
  std::string action;
  std::string name() const { return fmt::format("{}{}Rank{}", place, action, rank); }
};

const std::vector<std::pair<std::string, std::string>> places{{"Forward", "ring keys and values"},
                                                              {"Backward", "ring gradients"},
                                                              {"Reduction", "gradient reduction of a bucket"},
                                                              {"Save", "files of a checkpoint"},
                                                              {"Evaluation", "evaluation"}};

std::vector<Trial> trials() {
  const char* const wanted = std::getenv("RINGTRAIN_TORTURE_TRIALS");
  if (!wanted) {
    return {{"Forward", places[0].second, 11, 3, "kill"},   {"Backward", places[1].second, 6, 0, "kill"},
            {"Reduction", places[2].second, 9, 1, "stop"},  {"Save", places[3].second, 3, 2, "kill"},
            {"Evaluation", places[4].second, 2, 0, "stop"}, {"Forward", places[0].second, 7, 1, "diverge"},
            {"Backward", places[1].second, 3, 2, "slow"},   {"Reduction", places[2].second, 4, 3, "throw"}};
  }
  std::vector<Trial> all;
  std::mt19937 random(std::random_device{}());
  for (int i = 0; i < std::atoi(wanted); ++i) {
    const auto& [place, operation] = places[static_cast<std::size_t>(i) % places.size()];
    const char* const action = std::array{"kill", "stop", "slow"}[static_cast<std::size_t>(i) / places.size() % 3];
    // A slow run does 4 steps, two saves, and two evaluations: 3 exchanges each.
    const int most = action == std::string("slow") ? 6 : place == "Evaluation" ? 4 : 20;
    all.push_back({place, operation, 1 + static_cast<int>(random() % static_cast<unsigned>(most)),
                   static_cast<int>(random() % processes), action});
  }
  return all;
}

/// Returns how long before `end`, in nanoseconds of the steady clock, the fault occurred; nothing if it did not.
std::optional<double> seconds_after_fault(const std::string& said, std::int64_t end) {
  std::smatch found;
  if (!std::regex_search(said, found, std::regex("fault: rank [0-9]+, [a-z]+, at ([0-9]+)"))) return std::nullopt;
  return 1e-9 * static_cast<double>(end - std::stoll(found[1].str()));
}

class RankFaults : public LaunchTest, public ::testing::WithParamInterface<Trial> {};

TEST_P(RankFaults, EndAsPromised) {
  const Trial& trial = GetParam();
  const std::string fault = fmt::format("{}:{}:{}:{}", trial.rank, trial.operation, trial.count, trial.action);
  const Variable variable("RINGTRAIN_FAULT", fault);
  const bool slow = trial.action == "slow";
  const ChildResult result =
      start(slow ? std::vector<std::string>{"--set", "training.steps=4"} : std::vector<std::string>{}).wait();
  const std::int64_t end = std::chrono::steady_clock::now().time_since_epoch().count();
  expect_nothing_left();
  const std::optional<double> seconds = seconds_after_fault(result.err, end);
  ASSERT_TRUE(seconds) << fault << ": it never came so far\n" << result.err;
  if (slow) {
    EXPECT_EQ(result.code, 0) << fault << "\n" << result.err;
    EXPECT_EQ(metrics("runs/run").size(), 4u);
    return;
  }
  std::printf("%s: ended %.1f s after the fault\n", fault.c_str(), *seconds);
  EXPECT_LE(*seconds, timeout_seconds + slack_seconds) << fault << "\n" << result.err;
  if (trial.action == "throw") {
    EXPECT_EQ(result.code, 5) << result.err;
    EXPECT_EQ(count_of(result.err, "throws, as RINGTRAIN_FAULT says\n"), 1u) << result.err;
    const std::regex place(fmt::format(R"(train: rank {} of 4 \(process [0-9]+ on host [^ ]+\): )", trial.rank));
    EXPECT_TRUE(std::regex_search(result.err, place)) << "who, and where\n" << result.err;
    return;
  }
  EXPECT_EQ(result.code, 6) << fault << "\n" << result.err;
  EXPECT_EQ(count_of(result.err, "train: what each rank did last"), 1u) << "one report\n" << result.err;
  const std::string victim = fmt::format("rank {} of 4", trial.rank);
  EXPECT_TRUE(holds(result.err, victim));
  for (int rank = 0; rank < processes; ++rank) {
    EXPECT_TRUE(holds(result.err, fmt::format("  rank {} of 4 (process ", rank)));
  }
  EXPECT_GE(count_of(result.err, "last calls:\n"), 3u) << result.err;
  if (trial.action == "kill") {
    EXPECT_TRUE(holds(result.err, "has ended without a message"));
  } else if (trial.action == "stop") {
    EXPECT_TRUE(holds_all(result.err, {": does not answer", "waited 3 s (mesh.timeout_seconds) in "}));
  } else {
    EXPECT_TRUE(holds_all(result.err, {"(something else", "(" + trial.operation}));
  }
}

INSTANTIATE_TEST_SUITE_P(OneOfFour, RankFaults, ::testing::ValuesIn(trials()), [](const auto& one) {
  return one.param.name() + (std::getenv("RINGTRAIN_TORTURE_TRIALS") ? "Trial" + std::to_string(one.index) : "");
});

class RankChecks : public LaunchTest {};

// A check has the timeout of its config, whether a rank is stopped in the step or while rank 0 computes the reference.
TEST_F(RankChecks, EndWithinTheTimeout) {
  const std::vector<std::string> command{"check", "--config", "run.yaml", "--set", "training.seq_len=1200"};
  for (const std::string fault : {"1:ring keys and values:2:stop", "3:waiting for work of rank 0:4:stop"}) {
    const Variable variable("RINGTRAIN_FAULT", fault);
    const ChildResult result = launched(command).wait_at_most(240);
    const std::int64_t end = std::chrono::steady_clock::now().time_since_epoch().count();
    expect_nothing_left();
    EXPECT_EQ(result.code, 6) << fault << "\n" << result.err;
    const std::optional<double> seconds = seconds_after_fault(result.err, end);
    ASSERT_TRUE(seconds) << fault << ": it never came so far\n" << result.err;
    EXPECT_LE(*seconds, timeout_seconds + slack_seconds) << fault << "\n" << result.err;
    std::filesystem::remove_all(at("run.check"));
  }
}

}  // namespace
}  // namespace ringtrain::testing
