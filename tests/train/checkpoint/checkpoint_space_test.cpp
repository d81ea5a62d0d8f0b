// Whether a run's checkpoints fit on its disk is determined before the first step.
#include "train/run/checkpoint_space.h"

#include <sys/mount.h>
#include <unistd.h>

#include "tests/train/child_process.h"
#include "tests/train/train_fixture.h"
#include "train/engine/checkpoint_size.h"

namespace ringtrain::testing {
namespace {

class Space : public TextTest {
 protected:
  CheckpointSpace space_of(const Config& config, const StartRequest& start = {}) const {
    return checkpoint_space(prepare_run({.config = config, .output = at("run"), .start = start}, quiet));
  }
};

TEST_F(Space, IsWhatACheckpointTakes) {
  for (const auto& more : {std::vector<std::string>{}, {"mesh.sequence=2", "training.shard=weights"}}) {
    const Config config = tiny(data, joined({"training.steps=4", "training.global_batch_size=2",
                                             "checkpoint.interval=2", "checkpoint.every_minutes=0"},
                                            more));
    const CheckpointSpace space = space_of(config);
    EXPECT_EQ(space.most, 2);
    EXPECT_EQ(space.pending, 2);
    run(config, "run");
    std::int64_t bytes = 0;
    for (const auto& entry : fs::directory_iterator(checkpoint("run", 4))) {
      if (entry.path().extension() == ".h5") bytes += static_cast<std::int64_t>(entry.file_size());
    }
    EXPECT_GE(bytes, space.each);
    EXPECT_LT(bytes, space.each + 65536 * config.mesh.sequence) << "more than headers";
    fs::remove_all(at("run"));
  }
}

TEST_F(Space, CountsSavesAndWhatIsThere) {
  const auto saves = [](std::int64_t interval, std::int64_t done, std::int64_t last) {
    return saves_to_come({.interval = interval, .every_minutes = 0}, done, last);
  };
  EXPECT_EQ(saves(0, 0, 10), 1);
  EXPECT_EQ(saves(4, 0, 12), 3);
  EXPECT_EQ(saves(4, 0, 13), 4);
  EXPECT_EQ(saves(4, 4, 12), 2);
  EXPECT_EQ(saves(4, 5, 7), 1);
  EXPECT_EQ(saves(4, 12, 12), 0);
  EXPECT_EQ(saves(-1, 0, 12), 0);
  EXPECT_EQ(saves_to_come({.interval = 4}, 2, 12), 10);  // by time, it may be each step

  const Config config =
      tiny(data, {"training.steps=12", "training.global_batch_size=2", "checkpoint.interval=2", "checkpoint.keep=2"});
  EXPECT_EQ(space_of(config).most, 3);
  run(config, "run", {}, 4);
  const CheckpointSpace later = space_of(config, resumed());
  EXPECT_EQ(later.most, 3);
  EXPECT_EQ(later.pending, 1);  // two exist already
  Config generous = config;
  generous.checkpoint.keep = 10;
  run(generous, "run", resumed(), 8);
  EXPECT_EQ(space_of(config, resumed()).most, 5);  // the next save comes before the deletion of the four
}

TEST_F(Space, IsRefusedOrWarnedOf) {
  std::vector<std::string> logs;
  const Log log = [&](const std::string& line) { logs.push_back(line); };
  const CheckpointSpace space{.folder = "runs/x", .each = 1000, .most = 4, .pending = 4, .free = 4000};
  check_space(space, log);
  EXPECT_TRUE(logs.empty());
  CheckpointSpace less = space;
  less.free = 3999;
  check_space(less, log);
  ASSERT_EQ(logs.size(), 1u);
  EXPECT_TRUE(holds(logs[0], "free 1 bytes"));
  less.free = 999;
  expect_error_holding(ExitCode::usage, {"a checkpoint takes 1000 bytes, and the disk of runs/x has 999 free"},
                       [&] { check_space(less, log); });
  less.pending = 0;  // nothing is saved
  check_space(less, log);
  EXPECT_EQ(logs.size(), 1u);
}

TEST_F(Space, OfASmallDiskIsRefusedBeforeTheFirstStep) {
  const std::string disk = at("disk");
  fs::create_directory(disk);
  if (::getuid() != 0 || ::mount("tmpfs", disk.c_str(), "tmpfs", 0, "size=64k") != 0) {
    GTEST_SKIP() << "only root may make a small disk";
  }
  write_config(tiny(data, {"training.steps=2", "training.global_batch_size=2"}));
  for (const bool dry : {true, false}) {
    std::vector<std::string> arguments{"--config", "run.yaml", "--output", "disk/run"};
    if (dry) arguments.emplace_back("--dry-run");
    const ChildResult result = run_child("train", arguments, folder);
    expect_end(result, 2, {"could not save"});
    EXPECT_EQ(result.out.find("checkpoints: ") != std::string::npos, dry) << result.out;
    EXPECT_FALSE(fs::exists(disk + "/run"));
  }
  EXPECT_EQ(::umount(disk.c_str()), 0);
}

}  // namespace
}  // namespace ringtrain::testing
