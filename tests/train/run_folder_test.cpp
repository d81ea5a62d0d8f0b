// Which folders a run accepts: none with files that are not a run's, none whose checkpoints are missing, none of
// another run; and a run continues with its own config.
#include <poll.h>
#include <signal.h>  // NOLINT(modernize-deprecated-headers): kill is POSIX
#include <sys/inotify.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <optional>

#include "framework/config/read_config.h"
#include "framework/storage/files.h"
#include "tests/support/paths.h"
#include "tests/train/child_process.h"
#include "tests/train/faulty_disk.h"
#include "tests/train/train_fixture.h"

namespace ringtrain::testing {
namespace {

class RunFolders : public TextTest {
 protected:
  void SetUp() override {
    TextTest::SetUp();
    write_config(config());
  }
  Config config(const std::vector<std::string>& more = {}) const {
    return tiny(data, joined({"training.steps=4", "training.global_batch_size=2", "checkpoint.interval=2"}, more));
  }
  ChildResult train_into(const std::string& output, const std::vector<std::string>& more = {}) const {
    return run_child("train", joined({"--config", "run.yaml", "--output", output}, more), folder);
  }
  std::vector<double> steps(const std::string& output) const { return numbers(output, "step"); }
};

TEST_F(RunFolders, WhatIsNotARunsIsNeverWrittenOver) {
  // A person's config at the path where the run would write its own; metrics of another program.
  fs::create_directory(at("mine"));
  const std::string own = "# my logs\ntraining: {steps: 3}\n", others = "{\"step\":1,\"loss\":2.5}\n{\"step\":2}\n";
  std::ofstream(at("mine/config.yaml")) << own;
  fs::create_directory(at("others"));
  std::ofstream(at("others/metrics.jsonl")) << others;
  for (const std::vector<std::string>& more : {std::vector<std::string>{"--resume"}, {}}) {
    expect_refused(train_into("mine", more), 2, {"mine/config.yaml: was not written by a run", "--output"});
    expect_refused(train_into("others", more), 2,
                   {"others/metrics.jsonl: does not contain metrics of a run", "--output"});
    EXPECT_EQ(content_of(at("mine/config.yaml")), own);
    EXPECT_EQ(content_of(at("others/metrics.jsonl")), others);
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(at("mine")), fs::directory_iterator{}), 1);
}

TEST_F(RunFolders, AConfigOfOnesOwnIsNeverWrittenOver) {
  // Empty, with only sections, or exactly the text of a run's: if no run has been there, it is a person's.
  for (const std::string& own : {std::string(), std::string("model:\n"), to_yaml(config())}) {
    fs::create_directories(at("mine"));
    std::ofstream(at("mine/config.yaml")) << own;
    for (const std::vector<std::string>& more : {std::vector<std::string>{"--resume"}, {}, {"--dry-run"}}) {
      expect_refused(train_into("mine", more), 2, {"mine/config.yaml: was not written by a run", "--output"});
      EXPECT_EQ(content_of(at("mine/config.yaml")), own);
    }
    EXPECT_EQ(std::distance(fs::directory_iterator(at("mine")), fs::directory_iterator{}), 1);
  }
  ASSERT_EQ(train_into("run", {"--stop-after", "2"}).code, 0);
  std::ofstream(at("run/config.yaml")) << "";
  expect_refused(train_into("run", {"--resume"}), 2, {"run/config.yaml: was not written by a run"});
}

TEST_F(RunFolders, WithoutLocksItIsSaidAndALivingOwnerIsSeen) {
  RINGTRAIN_NEEDS_FAULTY_DISK();
  const std::map<std::string, std::string> settings{{"NO_LOCKS", "1"}};
  const FaultyDisk disk(settings);
  const ChildResult only = train_into("run", {"--stop-after", "2"});
  EXPECT_EQ(only.code, 0) << only.err;
  const std::size_t said = only.err.find("run: this file system has no locks");
  ASSERT_NE(said, std::string::npos) << only.err;
  EXPECT_EQ(only.err.find("has no locks", said + 40), std::string::npos) << "said once: " << only.err;
  // The lock names a process that has ended, or one that runs another program: neither keeps anybody out.
  std::ofstream(at("run/lock")) << ::getpid() << "\n";
  EXPECT_EQ(train_into("run", {"--resume", "--stop-after", "3"}).code, 0);
  // It names a process that lives and runs this program.
  std::ofstream(at("long.yaml")) << to_yaml(config({"training.steps=1000000", "checkpoint.interval=0"}));
  Child first("train", {"--config", "long.yaml", "--output", "long"}, folder);
  ASSERT_TRUE(wait_until([&] { return fs::exists(at("long/metrics.jsonl")); }));
  const ChildResult second = run_child("train", {"--config", "long.yaml", "--output", "long", "--resume"}, folder);
  EXPECT_EQ(second.code, 2) << second.err;
  EXPECT_TRUE(holds(second.err, fmt::format("process {}, according to long/lock", first.id())));
  ::kill(first.id(), SIGTERM);
  EXPECT_EQ(first.wait().code, 143);
}

TEST_F(RunFolders, CheckpointsThatAreGoneAreNoFreshStart) {
  ASSERT_EQ(train_into("run", {"--stop-after", "2"}).code, 0);
  const std::string before = content_of(at("run/metrics.jsonl"));
  fs::rename(at("run/checkpoints"), at("volume"));
  for (const bool empty : {false, true}) {  // like a mount point without its volume
    if (empty) fs::create_directory(at("run/checkpoints"));
    for (const std::vector<std::string>& more : {std::vector<std::string>{"--resume"}, {"--resume", "run"}, {}}) {
      expect_refused(train_into("run", more), 4,
                     {"metrics up to step 2", "run/checkpoints has no checkpoint", "mounted"});
      EXPECT_EQ(content_of(at("run/metrics.jsonl")), before);
    }
  }
  fs::remove(at("run/checkpoints"));
  fs::rename(at("volume"), at("run/checkpoints"));
  EXPECT_EQ(train_into("run", {"--resume"}).code, 0);
  EXPECT_EQ(steps("run"), (std::vector<double>{1, 2, 3, 4}));
}

TEST_F(RunFolders, AnotherRunsCheckpointIsRefusedWhereARunIs) {
  run(config(), "one");
  run(config({"training.seed=1234"}), "two", {}, 3);
  const std::string before = content_of(at("two/metrics.jsonl"));
  for (const std::string path : {"one/checkpoints/step-00000002", "one"}) {
    expect_refused(train_into("two", {"--resume", path}), 2, {"two: contains another run than one/checkpoints/step-"});
    EXPECT_EQ(content_of(at("two/metrics.jsonl")), before);
    EXPECT_EQ(saved_steps("two"), (std::vector<std::int64_t>{2, 3}));
  }
  // If there is none, it begins there; and its own checkpoints are its own, whatever path leads to them.
  EXPECT_EQ(train_into("three", {"--resume", "one/checkpoints/step-00000002", "--stop-after", "3"}).code, 0);
  EXPECT_EQ(train_into("three", {"--resume", "./two/../three/checkpoints/step-00000003/"}).code, 0);
  EXPECT_EQ(steps("three"), (std::vector<double>{3, 4}));
}

TEST_F(RunFolders, AFirstStartThatSavedNothingBeginsAgainByTheSameCommand) {
  const auto fail_to_save = [&](const std::string& output, const std::vector<std::string>& more) {
    const auto arguments = joined({"--config", "run.yaml", "--output", output}, more);
    expect_end(run_child("train", arguments, folder, [] { limit(RLIMIT_FSIZE, 30000); }), 4);
    EXPECT_GE(metrics(output).size(), 2u);
  };
  fail_to_save("run", {});
  const std::string before = content_of(at("run/metrics.jsonl"));
  expect_refused(train_into("run", {"--set", "optimizer.lr=0.5"}), 2,
                 {"without saving, and its config differs", "optimizer.lr was 0.01 and is now 0.5"});
  EXPECT_EQ(content_of(at("run/metrics.jsonl")), before);
  expect_end(train_into("run"), 0, {"saved nothing"});
  EXPECT_EQ(steps("run"), (std::vector<double>{1, 2, 3, 4}));
  expect_refused(train_into("run"), 2, {"already holds a run"});  // now it has saved
  fail_to_save("branch", {"--resume", "run/checkpoints/step-00000002"});
  expect_refused(train_into("branch"), 2, {"its metrics begin at step 3", "name that checkpoint with --resume PATH"});
  expect_refused(train_into("branch", {"--resume"}), 2, {"its metrics begin at step 3"});
  EXPECT_EQ(train_into("branch", {"--resume", "run/checkpoints/step-00000002"}).code, 0);
  EXPECT_EQ(steps("branch"), (std::vector<double>{3, 4}));
}

TEST_F(RunFolders, ARunGoesOnWithItsOwnConfig) {
  for (const std::vector<std::string>& more : {std::vector<std::string>{"--resume", "run"},
                                               {"--resume", "run/"},
                                               {"--output", "run", "--resume"},
                                               {"--resume", "run/checkpoints/step-00000002"}}) {
    fs::remove_all(at("run"));
    ASSERT_EQ(train_into("run", {"--stop-after", "2"}).code, 0);
    const ChildResult result = run_child("train", more, folder);
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(steps("run"), (std::vector<double>{1, 2, 3, 4})) << result.err;
    EXPECT_FALSE(fs::exists(at("runs")));
  }
  // A change with --set, and into another folder.
  EXPECT_EQ(run_child("train", {"--resume", "run", "--set", "training.steps=5"}, folder).code, 0);
  EXPECT_EQ(steps("run").back(), 5);
  EXPECT_EQ(run_child("train", {"--resume", "run", "--output", "on", "--set", "training.steps=6"}, folder).code, 0);
  EXPECT_EQ(steps("on"), (std::vector<double>{6}));
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{}, {"--resume"}, {"--output", "nowhere", "--resume"}}) {
    expect_refused(run_child("train", more, folder), 2, {"--config is required"});
  }
  expect_refused(run_child("train", {"--resume", "nowhere"}, folder), 2, {"--resume: nowhere does not exist"});
}

TEST_F(RunFolders, WhatAKilledStartLeftIsSweptAndNothingElse) {
  fs::create_directory(at("run"));
  const std::vector<std::string> left{"config.yaml.partial-123-0123abcd", "metrics.jsonl.partial-9-ffffffff"},
      others{"config.yaml.partial-mine", "config.yaml.partial", "logs.partial-123-0123abcd"};
  for (const auto& names : {left, others}) {
    for (const std::string& name : names) std::ofstream(at("run/" + name)) << "x";
  }
  run(config(), "run", {}, 1);
  for (const std::string& name : left) EXPECT_FALSE(fs::exists(at("run/" + name))) << name;
  for (const std::string& name : others) EXPECT_TRUE(fs::exists(at("run/" + name))) << name;
}

TEST_F(RunFolders, AFinishedRunIsSwept) {
  ASSERT_EQ(train_into("run").code, 0);
  const std::string half = "run/checkpoints/step-00000002.deleted-12-0123abcd";  // its run was killed meanwhile
  fs::create_directory(at(half));
  std::ofstream(at(half + "/manifest.json")) << "{}";
  const std::string all_done = "run: nothing is left to do: step 4 is done, the last is 4; to train longer, add";
  EXPECT_TRUE(train_into("run", {"--resume", "--dry-run"}).out.starts_with(all_done));
  EXPECT_TRUE(fs::exists(at(half)));
  expect_end(train_into("run", {"--resume"}), 0, {all_done});
  EXPECT_FALSE(fs::exists(at(half)));
  EXPECT_EQ(saved_steps("run"), (std::vector<std::int64_t>{2, 4}));
  expect_end(train_into("run", {"--resume", "--set", "training.steps=9", "--stop-after", "4"}), 0,
             {"nothing is left to do: step 4 is done, the last is 4; to train longer, leave out --stop-after"});
}

// Ranks that are processes end a second after a launcher that was killed.
TEST_F(RunFolders, AResumeWaitsForRanksThatStillEnd) {
  ASSERT_EQ(train_into("run").code, 0);
  std::optional<FileLock> rank = FileLock::acquire(at("run/lock"), "", ExitCode::usage);
  const int opened = ::inotify_init1(IN_CLOEXEC);
  ASSERT_GE(::inotify_add_watch(opened, at("run/lock").c_str(), IN_OPEN), 0);
  Child resumed(binary_folder() + "/train",
                {"--config", "run.yaml", "--output", "run", "--resume", "--set", "training.steps=6"}, folder);
  for (int look = 0; look < 2; ++look) {  // it finds the lock held, and checks again
    pollfd wait{opened, POLLIN, 0};
    ASSERT_EQ(::poll(&wait, 1, /*milliseconds=*/120'000), 1);
    std::array<char, 4096> event;
    ASSERT_GT(::read(opened, event.data(), event.size()), 0);
  }
  rank.reset();
  expect_end(resumed.wait(), 0);
  EXPECT_EQ(steps("run"), (std::vector<double>{1, 2, 3, 4, 5, 6}));
  ::close(opened);
}

}  // namespace
}  // namespace ringtrain::testing
