// Faults among ranks that are processes, started by scripts/launch: one of 4 is killed, stopped, slowed, or diverges,
// in forward, backward, gradient reduction, a save and an evaluation. The run ends with code 6 and one report within
// the timeout and 5 seconds (or goes on, when slowed), and leaves no process behind. Signals save and end; exit codes
// come out. RINGTRAIN_TORTURE_TRIALS=N makes N random trials of the few fixed ones (scripts/torture ranks).
#include <algorithm>
#include <array>
#include <cctype>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <thread>

#include "framework/config/read_config.h"
#include "tests/support/paths.h"
#include "tests/train/child_process.h"
#include "tests/train/train_fixture.h"
#include "train/checkpoint/checkpoint_folder.h"

namespace ringtrain::testing {
namespace {

namespace fs = std::filesystem;

constexpr int processes = 4;
constexpr double timeout_seconds = 3, slack_seconds = 5;

/// Sets a variable of the environment until it goes.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) { ::setenv(name, value.c_str(), 1); }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

class LaunchTest : public TrainTest {
 protected:
  void SetUp() override {
    TrainTest::SetUp();
    ::setenv("ASAN_OPTIONS", "detect_leaks=0", 1);  // of the children: MPI libraries keep memory
    TextPlan text;
    text.longest = 200;
    text.validation_documents = 30;
    data = write_tokens("text.h5", text);
    std::ofstream(at("run.yaml")) << to_yaml(
        tiny(data,
             {"training.steps=40", "training.global_batch_size=2", "mesh.data=2", "mesh.sequence=2",
              fmt::format("mesh.timeout_seconds={}", timeout_seconds), "checkpoint.interval=2", "evaluation.interval=2",
              "evaluation.context_lengths=[16,32]", "evaluation.target_tokens=8", "evaluation.target_blocks=4"}));
    token_.emplace("RINGTRAIN_TEST_TOKEN", fs::path(folder).filename().string());
  }
  Child start(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments{
        "-n", std::to_string(processes), "--", binary_folder() + "/train", "--config", "run.yaml"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Child(source_folder() + "/scripts/launch", arguments, folder);
  }
  /// Return the processes that this test started and that are still there.
  std::vector<std::string> left_behind() const {
    const std::string mark = "RINGTRAIN_TEST_TOKEN=" + fs::path(folder).filename().string();
    std::vector<std::string> found;
    for (const auto& entry : fs::directory_iterator("/proc")) {
      const std::string name = entry.path().filename().string();
      if (!std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c); }) ||
          name == std::to_string(::getpid()))
        continue;
      if (content_of(entry.path().string() + "/environ").find(mark) == std::string::npos) continue;
      std::string command = content_of(entry.path().string() + "/cmdline");
      std::replace(command.begin(), command.end(), '\0', ' ');
      found.push_back(name + ": " + command);
    }
    return found;
  }
  void expect_nothing_left() const {
    for (int i = 0; i < 20 && !left_behind().empty(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(100));
    for (const std::string& process : left_behind()) ADD_FAILURE() << "left behind: " << process;
  }
  void wait_for_steps(std::size_t steps) const {
    for (int i = 0; i < 600 && (!fs::exists(at("runs/run/metrics.jsonl")) || lines() < steps); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    ASSERT_GE(lines(), steps);
  }
  std::size_t lines() const {
    const std::string text = content_of(at("runs/run/metrics.jsonl"));
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  }
  std::string data;

 private:
  std::optional<Variable> token_;
};

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

// --- One rank fails.

struct Trial {
  std::string place, operation;
  int count = 1, rank = 0;
  std::string action;
  std::string name() const { return fmt::format("{}{}Rank{}", place, action, rank); }
};

const std::vector<std::pair<std::string, std::string>> places{{"Forward", "ring keys and values"},
                                                              {"Backward", "ring gradients"},
                                                              {"Reduction", "gradient reduction of a parameter group"},
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
    // A slow run makes 4 steps, two saves and two evaluations: 3 exchanges each.
    const int most = action == std::string("slow") ? 6 : place == "Evaluation" ? 4 : 20;
    all.push_back({place, operation, 1 + static_cast<int>(random() % static_cast<unsigned>(most)),
                   static_cast<int>(random() % processes), action});
  }
  return all;
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

  const std::string mark = fmt::format("fault: rank {}, {}, at ", trial.rank, trial.action);
  const std::size_t told = result.err.find(mark);
  ASSERT_NE(told, std::string::npos) << fault << ": it never came so far\n" << result.err;
  if (slow) {
    EXPECT_EQ(result.code, 0) << fault << "\n" << result.err;
    EXPECT_EQ(metrics("runs/run").size(), 4u);
    return;
  }
  const double seconds = 1e-9 * static_cast<double>(end - std::atoll(result.err.c_str() + told + mark.size()));
  std::printf("%s: ended %.1f s after the fault\n", fault.c_str(), seconds);
  EXPECT_LE(seconds, timeout_seconds + slack_seconds) << fault << "\n" << result.err;
  if (trial.action == "throw") {
    EXPECT_EQ(result.code, 5) << result.err;
    EXPECT_EQ(count_of(result.err, "throws as RINGTRAIN_FAULT wants it\n"), 1u) << result.err;
    return;
  }
  EXPECT_EQ(result.code, 6) << fault << "\n" << result.err;
  EXPECT_EQ(count_of(result.err, "train: what each rank did last"), 1u) << "one report\n" << result.err;
  const std::string victim = fmt::format("rank {} of 4", trial.rank);
  EXPECT_NE(result.err.find(victim), std::string::npos) << result.err;
  for (int rank = 0; rank < processes; ++rank) {
    EXPECT_NE(result.err.find(fmt::format("  rank {} of 4 (process ", rank)), std::string::npos) << result.err;
  }
  EXPECT_GE(count_of(result.err, "last calls:\n"), 3u) << result.err;
  if (trial.action == "kill") {
    EXPECT_NE(result.err.find("has ended without a word"), std::string::npos) << result.err;
  } else if (trial.action == "stop") {
    EXPECT_NE(result.err.find(": does not answer"), std::string::npos) << result.err;
    EXPECT_NE(result.err.find("waited 3 s in "), std::string::npos) << result.err;
  } else {
    EXPECT_NE(result.err.find("(something else"), std::string::npos) << result.err;
    EXPECT_NE(result.err.find("(" + trial.operation), std::string::npos) << result.err;
  }
}

INSTANTIATE_TEST_SUITE_P(OneOfFour, RankFaults, ::testing::ValuesIn(trials()), [](const auto& one) {
  return one.param.name() + (std::getenv("RINGTRAIN_TORTURE_TRIALS") ? "Trial" + std::to_string(one.index) : "");
});

// --- The launcher.

class Launched : public LaunchTest {};

TEST_F(Launched, ASignalLetsAllRanksSave) {
  for (const int signal : {SIGTERM, SIGINT}) {
    const std::string output = signal == SIGTERM ? "terminated" : "interrupted";
    fs::remove_all(at("runs"));
    Child child = start({"--set", "training.steps=1000000", "--set", "checkpoint.interval=0"});
    wait_for_steps(3);
    ::kill(child.id(), signal);
    const ChildResult result = child.wait();
    EXPECT_EQ(result.code, 128 + signal) << result.err;
    expect_nothing_left();
    const std::int64_t last = metrics("runs/run").back().at("step").get<std::int64_t>();
    EXPECT_EQ(open_checkpoint(at("runs/run")).manifest.step, last) << result.err;
    EXPECT_EQ(count_of(result.err, "--resume goes on from here"), 1u) << result.err;
  }
}

TEST_F(Launched, ASecondSignalEndsAllAtOnce) {
  // A rank that is slow, after a few steps, keeps the first signal waiting for the end of its step.
  const Variable variable("RINGTRAIN_FAULT", "1:ring keys and values:300:slow");
  Child child = start({"--set", "training.steps=1000000", "--set", "training.global_batch_size=24", "--set",
                       "mesh.timeout_seconds=60"});
  wait_for_steps(1);
  ::kill(child.id(), SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const auto second = std::chrono::steady_clock::now();
  ::kill(child.id(), SIGTERM);
  const ChildResult result = child.wait();
  EXPECT_EQ(result.code, 143) << result.err;
  EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - second).count(), 5);
  expect_nothing_left();
}

TEST_F(Launched, ExitCodesComeOut) {
  EXPECT_EQ(start({"--set", "training.steps=2"}).wait().code, 0);
  ChildResult result = start().wait();
  EXPECT_EQ(result.code, 2) << "the folder holds a run\n" << result.err;
  EXPECT_EQ(count_of(result.err, "already holds a run"), 1u) << result.err;
  result = start({"--output", "other", "--set", "data.train=missing.h5"}).wait();
  EXPECT_EQ(result.code, 3) << result.err;
  result = start({"--resume", "nowhere"}).wait();
  EXPECT_EQ(result.code, 4) << result.err;
  expect_nothing_left();
}

TEST_F(Launched, AKilledLauncherLeavesNothing) {
  Child child = start({"--set", "training.steps=1000000"});
  wait_for_steps(3);
  ::kill(child.id(), SIGKILL);
  EXPECT_EQ(child.wait().code, 256 + SIGKILL);
  for (int i = 0; i < 50 && !left_behind().empty(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  expect_nothing_left();
}

}  // namespace
}  // namespace ringtrain::testing
