// What the tests of scripts/launch share: a run of 4 ranks, and which of its processes still exist.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/paths.h"
#include "tests/support/wait_until.h"
#include "tests/train/child_process.h"
#include "tests/train/train_fixture.h"

namespace ringtrain::testing {

/// Sets a variable of the environment while it lives.
class Variable {
 public:
  Variable(const char* name, const std::string& value) : name_(name) { ::setenv(name, value.c_str(), 1); }
  ~Variable() { ::unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
};

class LaunchTest : public SplitTextTest {
 protected:
  static constexpr int ranks = 4;

  void SetUp() override {
    SplitTextTest::SetUp();
    ::setenv("ASAN_OPTIONS", "detect_leaks=0", 1);  // for the children: MPI libraries keep memory
    write_config(
        tiny(data, {"training.steps=40", "training.global_batch_size=2", "mesh.data=2", "mesh.sequence=2",
                    "mesh.timeout_seconds=3", "checkpoint.interval=2", "evaluation.interval=2",
                    "evaluation.context_lengths=[16,32]", "evaluation.target_tokens=8", "evaluation.target_blocks=4"}));
    token_.emplace("RINGTRAIN_TEST_TOKEN", std::filesystem::path(folder).filename().string());
  }
  Child start(const std::vector<std::string>& more = {}, const std::function<void()>& before_start = {}) const {
    return launched(joined({"train", "--config", "run.yaml"}, more), before_start);
  }
  /// Starts a program as this many ranks.
  Child launched(std::vector<std::string> command, const std::function<void()>& before_start = {}) const {
    command[0] = binary_folder() + "/" + command[0];
    return Child(source_folder() + "/scripts/launch", joined({"-n", std::to_string(ranks), "--"}, command), folder,
                 before_start);
  }
  /// Returns the processes that this test started and that still exist.
  std::vector<std::string> left_behind() const {
    const std::string mark = "RINGTRAIN_TEST_TOKEN=" + std::filesystem::path(folder).filename().string();
    std::vector<std::string> found;
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
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
    if (wait_until([&] { return left_behind().empty(); })) return;
    for (const std::string& process : left_behind()) ADD_FAILURE() << "left behind: " << process;
  }
  void wait_for_steps(std::size_t steps) const {
    ASSERT_TRUE(wait_until([&] { return std::filesystem::exists(at("runs/run/metrics.jsonl")) && lines() >= steps; }));
  }
  std::size_t lines() const {
    const std::string text = content_of(at("runs/run/metrics.jsonl"));
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  }

 private:
  std::optional<Variable> token_;
};

inline std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

}  // namespace ringtrain::testing
