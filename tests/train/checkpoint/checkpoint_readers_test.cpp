// Checkpoints that are not where or what their names say, and readers of a run that meanwhile deletes its old ones.
#include <signal.h>  // NOLINT(modernize-deprecated-headers): kill is POSIX

#include <sys/wait.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "tests/train/child_process.h"
#include "tests/train/faulty_disk.h"
#include "tests/train/train_fixture.h"
#include "train/checkpoint/checkpoint_folder.h"

namespace ringtrain::testing {
namespace {

class CheckpointReaders : public SplitTextTest {
 protected:
  Config config(const std::vector<std::string>& more = {}) const {
    return tiny(data, joined({"training.steps=6", "training.global_batch_size=2", "checkpoint.interval=2"}, more));
  }
  ChildResult resume() const {
    write_config(config());
    return run_child("train", go_on, folder);
  }
  ChildResult verify(const std::string& path) const {
    return run_child("train", {"--verify-checkpoint", path}, folder);
  }
  static void copy_tree(const std::string& from, const std::string& to) {
    fs::copy(from, to, fs::copy_options::recursive);
  }
  const std::vector<std::string> go_on{"--config", "run.yaml", "--output", "run", "--resume"};
};

TEST_F(CheckpointReaders, ACopyUnderALaterNameIsReportedAndSkipped) {
  run(config(), "run", {}, 4);
  const std::string copy = checkpoint("run", 99), brief = at("run/checkpoints/step-50");
  copy_tree(checkpoint("run", 4), copy);
  copy_tree(checkpoint("run", 4), brief);
  const std::string manifest = content_of(copy + "/manifest.json");
  const std::string sentence = "step-00000099: its name says step 99, but its manifest says step 4";
  ChildResult result = verify("run");
  EXPECT_EQ(result.code, 4);
  EXPECT_TRUE(holds_all(result.out, {sentence, "step-50: this is not a checkpoint's name", "step-00000004: good"}));
  EXPECT_EQ(verify("run/checkpoints/step-00000099").code, 4);
  result = resume();
  expect_end(result, 0,
             {sentence, "step-50: this is not a checkpoint's name; it is skipped",
              "resuming from run/checkpoints/step-00000004"});
  EXPECT_EQ(numbers("run", "step"), (std::vector<double>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(content_of(copy + ".superseded/manifest.json"), manifest);  // set aside, not deleted
  EXPECT_TRUE(fs::exists(brief));
}

TEST_F(CheckpointReaders, NothingIsSetAsideIfNoneOpens) {
  run(config(), "run", {}, 4);
  fs::rename(checkpoint("run", 4), checkpoint("run", 99));
  fs::rename(checkpoint("run", 2), checkpoint("run", 98));
  const std::string before = content_of(at("run/metrics.jsonl"));
  expect_end(resume(), 4, {"none of the 2 checkpoints is intact"});
  EXPECT_EQ(saved_steps("run"), (std::vector<std::int64_t>{98, 99}));
  EXPECT_EQ(content_of(at("run/metrics.jsonl")), before);
}

TEST_F(CheckpointReaders, OneRenamedToAnEarlierStepIsReported) {
  run(config(), "run", {}, 4);
  fs::rename(checkpoint("run", 4), checkpoint("run", 1));
  expect_end(resume(), 0,
             {"step-00000001: its name says step 1, but its manifest says step 4",
              "resuming from run/checkpoints/step-00000002"});
}

TEST_F(CheckpointReaders, StateOfAnotherStepIsFoundHoweverWellItIsSealed) {
  run(config(), "run", {}, 4);
  for (const std::string ending : {"", ".json"}) {
    fs::copy_file(state_file(checkpoint("run", 2)) + ending, state_file(checkpoint("run", 4)) + ending,
                  fs::copy_options::overwrite_existing);
  }
  seal_checkpoint(checkpoint("run", 4));
  ChildResult result = verify("run");
  EXPECT_EQ(result.code, 4) << result.out;
  EXPECT_TRUE(holds(result.out, "is from step 2, but the folder's manifest is from step 4"));
  result = resume();
  expect_end(result, 0, {"resuming from run/checkpoints/step-00000002"});
}

TEST_F(CheckpointReaders, CountsThatNoRunHasAreDamage) {
  run(config(), "run", {}, 4);
  const std::string good = checkpoint("run", 4), bad = at("run/checkpoints/step-00000006");
  struct Count {
    const char* name;
    std::int64_t CheckpointManifest::*member;
  };
  write_config(config());
  for (const auto& [name, member] :
       {Count{"samples", &CheckpointManifest::samples}, Count{"tokens", &CheckpointManifest::tokens},
        Count{"skipped_steps", &CheckpointManifest::skipped_steps}, Count{"ranks", &CheckpointManifest::ranks}}) {
    for (const std::int64_t value : {std::int64_t{5}, std::int64_t{1} << 62, INT64_MAX}) {
      fs::remove_all(bad);
      copy_tree(good, bad);
      seal_checkpoint(bad, [&](CheckpointManifest& manifest) { manifest.*member = value; });
      fs::remove_all(at("copy"));
      fs::rename(bad, at("copy"));
      error_of(ExitCode::checkpoint, [&] { open_checkpoint(at("copy")); });
    }
    const ChildResult result =
        run_child("train", {"--config", "run.yaml", "--output", "other", "--resume", "copy"}, folder);
    EXPECT_EQ(result.code, 4) << name << ": " << result.err;
    EXPECT_EQ(verify("copy").code, 4) << name;
  }
}

TEST_F(CheckpointReaders, WhatIsReadIsNotDeleted) {
  run(config(), "run", {}, 4);
  const CheckpointFolder checkpoints(at("run/checkpoints"));
  std::vector<std::string> warnings;
  const auto warn = [&](const std::string& line) { warnings.push_back(line); };
  const CheckpointManifest saved = read_checkpoint_manifest(checkpoint("run", 4));
  std::set<std::string> left;
  {
    const Checkpoint reader = open_checkpoint(checkpoint("run", 2));
    const Checkpoint another = open_checkpoint(checkpoint("run", 2));
    checkpoints.prune(1, saved, left, warn);
    EXPECT_EQ(checkpoints.steps(), (std::vector<std::int64_t>{2, 4}));
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_TRUE(holds(warnings[0], "step-00000002: another process is reading it"));
    reader.release();
    checkpoints.prune(1, saved, left, warn);
    EXPECT_EQ(checkpoints.steps(), (std::vector<std::int64_t>{2, 4}));
  }
  checkpoints.prune(1, saved, left, warn);
  EXPECT_EQ(checkpoints.steps(), (std::vector<std::int64_t>{4}));
}

TEST_F(CheckpointReaders, WhatIsNoCheckpointOfThisRunIsNeverDeleted) {
  const std::vector<std::string> one{"training.steps=10", "checkpoint.interval=1", "checkpoint.keep=1"};
  run(config(one), "run", {}, 5);
  run(config(joined(one, {"optimizer.lr=0.0001234"})), "other", {}, 2);
  // A person's folder, an export, another run's checkpoint, one of this run with a note in it, a link to one.
  const std::map<std::int64_t, std::string> parts{{1, "it has no manifest.json"},
                                                  {2, "another run made it"},
                                                  {3, "it has no manifest.json"},
                                                  {4, "it is a link"},
                                                  {5, "it contains notes.txt"}};
  fs::create_directories(checkpoint("run", 1));
  std::ofstream(checkpoint("run", 1) + "/thesis.txt") << "mine";
  fs::rename(checkpoint("other", 2), checkpoint("run", 2));
  const ChildResult exported = run_child("export", {"--checkpoint", "run", "--output", "model"}, folder);
  ASSERT_EQ(exported.code, 0) << exported.err;
  fs::rename(at("model"), checkpoint("run", 3));
  fs::create_directory_symlink("step-00000005", checkpoint("run", 4));
  std::ofstream(checkpoint("run", 5) + "/notes.txt") << "mine";
  const std::string homonym = at("run/checkpoints/nothing-saved-yet");  // part of the message if there is no checkpoint
  fs::create_directory(homonym);
  std::ofstream(homonym + "/thesis.txt") << "mine";
  const auto content = [&] {
    std::map<std::string, std::string> files;
    for (const auto& [step, reason] : parts) {
      for (const auto& entry : fs::directory_iterator(checkpoint("run", step))) {
        files[entry.path().string()] = content_of(entry.path().string());
      }
    }
    return files;
  };
  const auto before = content();
  write_config(config(one));
  const ChildResult resumed = run_child("train", go_on, folder);
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(saved_steps("run"), (std::vector<std::int64_t>{1, 2, 3, 4, 5, 10}));
  EXPECT_TRUE(content() == before);
  EXPECT_EQ(content_of(homonym + "/thesis.txt"), "mine");
  for (const auto& [step, part] : parts) {
    const std::string name = fmt::format("step-{:08}: this run does not delete this folder (", step);
    const std::size_t said = resumed.err.find(name);
    ASSERT_NE(said, std::string::npos) << name << "\n" << resumed.err;
    EXPECT_TRUE(holds(resumed.err.substr(said, resumed.err.find('\n', said) - said), part)) << resumed.err;
    EXPECT_EQ(resumed.err.find(name, said + 1), std::string::npos) << "reported twice: " << resumed.err;
  }
  // Without the note, it is again the run's.
  fs::remove(checkpoint("run", 5) + "/notes.txt");
  std::set<std::string> warnings;
  const CheckpointFolder checkpoints(at("run/checkpoints"));
  checkpoints.prune(1, read_checkpoint_manifest(checkpoint("run", 10)), warnings, quiet);
  EXPECT_EQ(checkpoints.steps(), (std::vector<std::int64_t>{1, 2, 3, 4, 10}));
}

TEST_F(CheckpointReaders, AConfigThatChangesAfterItWasHashedIsNoticed) {
  RINGTRAIN_NEEDS_FAULTY_DISK();
  run(config(), "run", {}, 2);
  const std::string config_path = checkpoint("run", 2) + "/config.yaml";
  std::map<std::string, std::string> settings{
      {"PATH", "step-00000002/config.yaml"}, {"READS", "1"}, {"LOG", at("log")}};
  {
    const FaultyDisk disk(settings);
    ASSERT_EQ(verify("run").code, 0);
  }
  // It is stopped before it opens the config for the second time, and continues after the config was changed.
  std::istringstream log(content_of(at("log")));
  int opened = 0, before_the_last = 0;
  for (std::string line; std::getline(log, line);) {
    if (!holds(line, " open")) continue;
    ++opened;
    before_the_last = std::stoi(line) - 1;
  }
  ASSERT_GE(opened, 2) << log.str();
  settings["AT"] = std::to_string(before_the_last);
  settings["SIGNAL"] = std::to_string(SIGSTOP);
  const FaultyDisk disk(settings);
  Child child("train", {"--verify-checkpoint", "run"}, folder);
  int status = 0;
  ASSERT_EQ(::waitpid(child.id(), &status, WUNTRACED), child.id());
  ASSERT_TRUE(WIFSTOPPED(status)) << status;
  std::ofstream(config_path, std::ios::app) << "# and more\n";
  ::kill(child.id(), SIGCONT);
  const ChildResult result = child.wait();
  EXPECT_EQ(result.code, 4) << result.out;
  EXPECT_TRUE(holds(result.out, "config.yaml was changed while it was being read"));
}

TEST_F(CheckpointReaders, ARunGoesOnDeletingWhatItMadeBeforeItWasResumed) {
  run(config({"checkpoint.keep=2"}), "run", {}, 4);
  run(config({"checkpoint.keep=1", "optimizer.lr=0.0001234"}), "run", resumed());  // a different config since then
  EXPECT_EQ(saved_steps("run"), (std::vector<std::int64_t>{6}));
}

TEST_F(CheckpointReaders, OfARunThatKeepsOneFindOne) {
  // A run that saves at every step and keeps one checkpoint. Meanwhile, every program that reads it gets one.
  write_config(config({"training.steps=1000000", "checkpoint.interval=1", "checkpoint.keep=1"}));
  Child child("train", {"--config", "run.yaml", "--output", "run"}, folder);
  ASSERT_TRUE(wait_until([&] { return !CheckpointFolder(at("run/checkpoints")).steps().empty(); }));
  fs::create_directory(at("readers"));  // for their output
  for (int i = 0; i < 100; ++i) EXPECT_NO_THROW(open_checkpoint(at("run")));
  for (int i = 0; i < 5; ++i) {
    const std::vector<std::vector<std::string>> commands{
        {"evaluate", "--checkpoint", "../run", "--data", data, "--context-lengths", "16", "--target-tokens", "8"},
        {"train", "--verify-checkpoint", "../run"},
        {"train", "--config", "../run.yaml", "--init-from", "../run", "--output", fmt::format("new{}", i), "--set",
         "training.steps=1"}};
    for (const std::vector<std::string>& command : commands) {
      const ChildResult result = run_command(command, at("readers"));
      EXPECT_EQ(result.code, 0) << command[0] << " " << command[1] << ": " << result.err << result.out;
    }
  }
  ASSERT_EQ(::kill(child.id(), SIGTERM), 0);
  EXPECT_EQ(child.wait().code, 143);
}

}  // namespace
}  // namespace ringtrain::testing
