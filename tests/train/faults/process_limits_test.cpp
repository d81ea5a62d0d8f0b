// The built programs when their process has limits: streams that cannot be written, signals of a closed terminal or a
// scheduler, limits of memory, threads, and file sizes. A run saves, or ends with a code and a message.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "tests/train/child_process.h"
#include "tests/train/train_fixture.h"

namespace ringtrain::testing {
namespace {

class ProcessLimits : public SplitTextTest {
 protected:
  void SetUp() override {
    SplitTextTest::SetUp();
    write_config(tiny(data, {"training.steps=4", "training.global_batch_size=2"}));
  }
  ChildResult train_with(const std::vector<std::string>& arguments,
                         const std::function<void()>& before_start = {}) const {
    return Child("train", joined({"--config", "run.yaml"}, arguments), folder, before_start).wait_at_most(300);
  }
};

// --- Streams.

TEST_F(ProcessLimits, ARunSavesThoughItsMessagesAreLost) {
  for (const auto& [name, prepare] : broken_streams) {
    const ChildResult result = train_with({"--output", name}, prepare);
    EXPECT_EQ(result.code, 0) << name << "\n" << result.err;
    EXPECT_EQ(saved_step(name), 4) << name;
    EXPECT_EQ(metrics(name).size(), 4u) << name;
  }
  // The limit also applies to stderr's file. A state is larger than that: it is reported, and the process is not
  // killed.
  std::ofstream(at("stderr.txt")) << std::string(20000, ' ');
  expect_end(train_with({"--output", "small"}, [] { limit(RLIMIT_FSIZE, 20000); }), 4);
  // The metrics contain only metrics: messages to a closed stream went nowhere.
  const std::string lines = content_of(at("closed/metrics.jsonl"));
  EXPECT_FALSE(holds(lines, "train:"));
  EXPECT_EQ(content_of(at("closed/config.yaml")), content_of(at("full/config.yaml")));
}

TEST_F(ProcessLimits, OutputThatCannotBeWrittenIsCodeTwo) {
  ASSERT_EQ(train_with({}).code, 0);
  const std::vector<std::vector<std::string>> commands{
      {"train", "--help"},
      {"evaluate", "--help"},
      {"prepare", "--help"},
      {"train", "--config", "run.yaml", "--output", "other", "--dry-run"},
      {"train", "--verify-checkpoint", "runs/run"},
      {"evaluate", "--checkpoint", "runs/run", "--data", data, "--context-lengths", "16", "--target-tokens", "8"},
      {"prepare", "--synthetic", "recall", "--documents", "2", "--length", "600", "--pairs", "2", "--output", "r.h5"},
  };
  for (const auto& command : commands) {
    SCOPED_TRACE(command[0] + " " + command.back());
    for (const bool full : {true, false}) {
      fs::remove(at("r.h5"));
      fs::remove(at("r.h5.manifest.json"));
      const auto close_or_fill = [full] {
        if (full) {
          replace_stream(STDOUT_FILENO, "/dev/full", O_WRONLY);
        } else {
          ::close(STDOUT_FILENO);
        }
      };
      expect_end(run_command(command, folder, close_or_fill), 2,
                 {command[0] + ": cannot write the output to stdout: "});
    }
  }
}

// --- Signals.

TEST_F(ProcessLimits, WarningsSaveLikeSigterm) {
  for (const int signal : {SIGHUP, SIGUSR1, SIGXCPU, SIGPWR}) {
    const std::string output = fmt::format("signal{}", signal);
    Child child("train", {"--config", "run.yaml", "--output", output, "--set", "training.steps=1000000"}, folder,
                [] { ::signal(SIGHUP, SIG_DFL); });
    ASSERT_TRUE(wait_until([&] { return fs::exists(at(output) + "/metrics.jsonl") && metrics(output).size() > 2; }));
    for (int i = 0; i < 3; ++i) ::kill(child.id(), signal);
    ::kill(child.id(), SIGTERM);  // as a scheduler continues; the run has a request, but no second one
    const ChildResult result = child.wait_at_most(120);
    EXPECT_EQ(result.code, 143) << signal << "\n" << result.err;
    ASSERT_GT(metrics(output).size(), 2u);
    EXPECT_EQ(saved_step(output), metrics(output).back().at("step"));
    EXPECT_TRUE(holds(result.err, "stopped by "));
  }
}

// --- Limits.

TEST_F(ProcessLimits, ALimitOfAddressSpaceIsACodeWithASentence) {
#ifdef RINGTRAIN_SANITIZED
  GTEST_SKIP() << "sanitizers need all of the address space";
#endif
  constexpr std::int64_t mib = 1 << 20;
  const std::vector<std::string> again{"--set", "checkpoint.interval=1", "--set", "mesh.threads_per_rank=1"};
  const auto code_with = [&](std::int64_t bytes) {
    fs::remove_all(at("runs"));
    return train_with(again, [bytes] { limit(RLIMIT_AS, bytes); });
  };
  // The minimum that is sufficient, and the results with a few MiB less each time.
  std::int64_t low = 0, high = 4096;
  ASSERT_EQ(code_with(high * mib).code, 0);
  while (high - low > 1) {
    const std::int64_t middle = (low + high) / 2;
    (code_with(middle * mib).code == 0 ? high : low) = middle;
  }
  int refused = 0;
  for (std::int64_t less = 1; less <= 24; ++less) {
    if (less > high) break;
    const ChildResult result = code_with(high * mib - less * mib);
    const bool loaded = result.code != 127;  // libraries are mapped before any of our code runs
    EXPECT_TRUE(!loaded || result.code == 0 || result.code == 2 || result.code == 4 || result.code == 6)
        << less << " MiB less than " << high << ": " << result.code << "\n"
        << result.err;
    if (loaded && result.code != 0) {
      ++refused;
      EXPECT_NE(result.err.rfind("\ntrain: ") + 1, result.err.size()) << result.err;
    }
  }
  EXPECT_GT(refused, 3);
}

TEST_F(ProcessLimits, APlanMayTakeNoMoreThanNineteenTwentiethsOfWhatIsFree) {
#ifdef RINGTRAIN_SANITIZED
  GTEST_SKIP() << "sanitizers need all of the address space";
#endif
  constexpr std::int64_t free_bytes = std::int64_t{12} << 30;
  const ChildResult result = train_with({"--dry-run"}, [] { limit(RLIMIT_AS, free_bytes); });
  const std::size_t place = result.out.find("available: ");
  ASSERT_NE(place, std::string::npos) << result.out;
  EXPECT_LT(std::stod(result.out.substr(place + 11)), 0.95 * static_cast<double>(free_bytes));
}

/// Makes each thread request so much address space for its stack that only `threads` of them can be started.
void leave_threads(std::int64_t threads) {
  constexpr std::int64_t gib = std::int64_t{1} << 30;
  const rlimit stack{std::uint64_t{8} * gib, RLIM_INFINITY};
  if (::setrlimit(RLIMIT_STACK, &stack) != 0) ::_exit(125);
  limit(RLIMIT_AS, 8 * gib * threads + 4 * gib);
}

TEST_F(ProcessLimits, WithoutThreadsTheErrorSaysHowManyWereWanted) {
#ifdef RINGTRAIN_SANITIZED
  GTEST_SKIP() << "sanitizers need all of the address space";
#endif
  rlimit stack{};
  if (::getrlimit(RLIMIT_STACK, &stack) != 0 || stack.rlim_max != RLIM_INFINITY) {
    GTEST_SKIP() << "stacks are limited here, so that threads cannot be made to want more";
  }
  if (content_of("/proc/sys/vm/overcommit_memory") == "2\n") GTEST_SKIP() << "all stacks are counted as memory here";
  ChildResult result = train_with({"--set", "mesh.threads_per_rank=6"}, [] { leave_threads(3); });
  expect_end(result, 2, {"train: cannot start compute thread ", " of the 6 in a rank: "});
  result = train_with({"--output", "ranks", "--set", "mesh.sequence=4", "--set", "mesh.threads_per_rank=1"},
                      [] { leave_threads(2); });
  expect_end(result, 6, {"cannot start the thread of rank 2 of 4: "});
  // None for a background save: the step waits for it.
  result = train_with({"--output", "saves", "--set", "mesh.threads_per_rank=1", "--set", "checkpoint.interval=1"},
                      [] { leave_threads(1); });
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(saved_step("saves"), 4);
}

}  // namespace
}  // namespace ringtrain::testing
