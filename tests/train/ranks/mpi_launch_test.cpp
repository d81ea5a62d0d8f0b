// scripts/launch: for any signal at any time, all ranks save or end with the right code, nothing is left behind, and no
// other process is signaled. RINGTRAIN_TORTURE_LAUNCHES=N makes N tries at random moments (scripts/torture launch).
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <random>

#include "data/token_manifest.h"
#include "tests/train/launch_fixture.h"

namespace ringtrain::testing {
namespace {

const std::vector<std::string> endless{"--set", "training.steps=1000000", "--set", "mesh.timeout_seconds=60"};

class Launched : public LaunchTest {
 protected:
  /// Expects a run that was asked to end to have saved its last step, and all of its processes to have ended.
  void expect_saved(Child& child, int code) const {
    const ChildResult result = child.wait_at_most(120);
    expect_end(result, code);
    expect_nothing_left();
    EXPECT_EQ(saved_step("runs/run"), last_step("runs/run")) << result.err;
    EXPECT_EQ(count_of(result.err, "--resume continues from here"), 1u) << result.err;
  }
};

TEST_F(Launched, ASignalLetsAllRanksSave) {
  for (const int signal : {SIGTERM, SIGINT}) {
    std::filesystem::remove_all(at("runs"));
    Child child = start({"--set", "training.steps=1000000", "--set", "checkpoint.interval=0"});
    wait_for_steps(3);
    ::kill(child.id(), signal);
    expect_saved(child, 128 + signal);
  }
}

TEST_F(Launched, ASecondSignalEndsAllAtOnce) {
  // A rank that is slow after a few steps delays the first signal until the end of its step.
  const Variable variable("RINGTRAIN_FAULT", "1:ring keys and values:300:slow");
  Child child = start({"--set", "training.steps=1000000", "--set", "training.global_batch_size=24", "--set",
                       "mesh.timeout_seconds=60", "--set", "evaluation.interval=1000000"});  // only steps
  wait_for_words("fault: rank 1, slow");
  ::kill(child.id(), SIGTERM);
  wait_for_words("train: scripts/launch: ");
  ::kill(child.id(), SIGTERM);
  const ChildResult result = child.wait_at_most(50);  // before any rank is missed
  EXPECT_EQ(result.code, 8) << result.err;
  EXPECT_EQ(count_of(result.err,
                     "launch: SIGTERM: every rank finishes its step and saves, then the run ends; press Ctrl-C or send "
                     "SIGTERM again to end all ranks without saving\n"),
            1u)
      << result.err;
  EXPECT_EQ(count_of(result.err, "train: scripts/launch: finishing step "), 1u) << result.err;  // only from rank 0
  EXPECT_EQ(count_of(result.err, "launch: SIGTERM: ending all ranks at once, without saving\n"), 1u) << result.err;
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
  expect_nothing_left();
}

TEST_F(Launched, ATokenFileThatIsOverwrittenEndsAllRanksWithTheLastCheckpointIntact) {
  const TokenManifest manifest = read_manifest(data);
  const Hdf5Dataset& tokens = *find_dataset(manifest.datasets, "tokens");
  Child child = start(endless);
  wait_for_steps(5);
  // Token 300 of a vocabulary of 23, written as by cp or rsync --inplace.
  const std::vector<std::uint16_t> beyond(tokens.count(), 300);
  File::open_for_update(data, ExitCode::data)
      .write_at(tokens.offset, beyond.data(), static_cast<std::int64_t>(beyond.size()) * 2);
  const ChildResult result = child.wait_at_most(120);
  EXPECT_EQ(result.code, 3) << result.err;
  EXPECT_EQ(count_of(result.err, "text.h5 was changed while it was in use"), 1u) << result.err;
  EXPECT_TRUE(holds(result.err, "is intact"));
  EXPECT_GE(saved_step("runs/run"), 2);
  expect_nothing_left();
}

// --- Warnings.

TEST_F(Launched, WarningsLetAllRanksSave) {
  for (const int signal : {SIGUSR1, SIGHUP, SIGXCPU, SIGPWR}) {
    std::filesystem::remove_all(at("runs"));
    Child child = start(endless, [] { ::signal(SIGHUP, SIG_DFL); });
    wait_for_steps(3);
    for (int i = 0; i < 3; ++i) ::kill(child.id(), signal);
    ::kill(child.id(), SIGTERM);  // as a scheduler continues
    expect_saved(child, 143);
  }
}

// As Slurm does it: scancel --signal=USR1 --full.
TEST_F(Launched, AWarningToEveryProcessOfTheJobLetsAllRanksSave) {
  Child child = start(endless);
  wait_for_steps(3);
  for (const std::string& process : left_behind()) ::kill(std::stoi(process), SIGUSR1);
  expect_saved(child, 143);
}

TEST_F(Launched, AWarningToOneRankLetsAllRanksSave) {
  Child child = start(endless);
  wait_for_steps(3);
  int rank = 0;
  for (const std::string& process : left_behind()) {
    if (process.find(": " + binary_folder() + "/train ") != std::string::npos) rank = std::stoi(process);
  }
  ASSERT_GT(rank, 0);
  ::kill(rank, SIGUSR1);
  expect_saved(child, 143);
}

// --- Streams.

TEST_F(Launched, ARunSavesThoughItsMessagesAreLost) {
  for (const auto& [name, prepare] : broken_streams) {
    SCOPED_TRACE(name);
    std::filesystem::remove_all(at("runs"));
    const ChildResult result =
        start({"--set", "training.steps=3", "--set", "mesh.timeout_seconds=60"}, prepare).wait_at_most(120);
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(saved_step("runs/run"), 3);
    expect_nothing_left();
  }
}

TEST_F(Launched, OutputThatCannotBeWrittenIsCodeTwo) {
  const ChildResult result =
      start({"--dry-run"}, [] { replace_stream(STDOUT_FILENO, "/dev/full", O_WRONLY); }).wait_at_most(120);
  expect_end(result, 2, {"cannot write the output to stdout"});
}

// --- Any moment.

struct Signal {
  int number, code;
};

TEST_F(Launched, ASignalAtAnyMomentSavesOrEnds) {
  const char* const wanted = std::getenv("RINGTRAIN_TORTURE_LAUNCHES");
  const int tries = wanted ? std::atoi(wanted) : 10;
  const std::vector<Signal> signals{{SIGTERM, 143}, {SIGINT, 130},  {SIGKILL, 256 + SIGKILL},
                                    {SIGTERM, 143}, {SIGUSR1, 143}, {SIGHUP, 143}};
  // A child must never ignore them, even before its program starts (a shell in the background ignores SIGINT).
  const auto old_interrupt = ::signal(SIGINT, SIG_DFL), old_hang_up = ::signal(SIGHUP, SIG_DFL);
  std::mt19937 random(std::random_device{}());
  const Variable temporary("TMPDIR", folder);
  // Another process of the caller's group, which must receive no signal.
  Child witness("/bin/sleep", {"36000"}, folder, [] {
    ::setpgid(0, 0);
    ::unsetenv("RINGTRAIN_TEST_TOKEN");  // it is not a process of the run
  });
  const pid_t group = witness.id();
  ::setpgid(group, group);
  int saved = 0;
  for (int i = 0; i < tries && !HasFailure(); ++i) {
    std::filesystem::remove_all(at("runs"));
    const Signal signal = signals[static_cast<std::size_t>(i) % signals.size()];
    // Spread over the 2 seconds, so that a few tries also hit the start.
    const double seconds = 2.0 * (i + 1e-9 * static_cast<double>(random() % 1000000000)) / tries;
    Child child = start(endless, [group] { ::setpgid(0, group); });
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
    ::kill(child.id(), signal.number);
    const ChildResult result = child.wait_at_most(240);
    const std::string what =
        fmt::format("try {}: signal {} after {:.3f} s: code {}\n", i, signal.number, seconds, result.code);
    EXPECT_TRUE(result.code == signal.code || (result.code == 256 + signal.number && !path_exists(at("runs"))))
        << what << result.err;
    expect_nothing_left();
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      EXPECT_FALSE(entry.path().filename().string().starts_with("launch.")) << what << entry.path();
    }
    siginfo_t ended{};
    ::waitid(P_PID, static_cast<id_t>(group), &ended, WEXITED | WNOHANG | WNOWAIT);
    EXPECT_EQ(ended.si_pid, 0) << what << "another process of the caller's group was signalled";
    if (signal.number != SIGKILL && path_exists(at("runs/run/metrics.jsonl")) && lines() > 0) {
      EXPECT_EQ(saved_step("runs/run"), last_step("runs/run")) << what << result.err;
      ++saved;
    }
  }
  ::kill(group, SIGKILL);
  witness.wait();
  ::signal(SIGINT, old_interrupt);
  ::signal(SIGHUP, old_hang_up);
  std::printf("%d tries, %d of them saved steps\n", tries, saved);
}

}  // namespace
}  // namespace ringtrain::testing
