// checkpoint.every_minutes: rank 0's clock requests a save, all ranks save the same step, and no bit of training
// changes.
#include "tests/train/train_fixture.h"
#include "train/checkpoint/checkpoint_folder.h"

namespace ringtrain::testing {
namespace {

class SaveByTime : public TextTest {
 protected:
  /// Trains six steps on a mesh. Returns the steps that were saved, of which three are kept.
  std::vector<std::int64_t> saved(const std::string& output, const std::vector<std::string>& settings) {
    run(tiny(data,
             joined({"training.steps=6", "training.global_batch_size=2", "mesh.data=2", "mesh.sequence=2"}, settings)),
        output);
    return RunFolder(at(output)).checkpoints().steps();
  }
  /// Returns the hashes of all ranks' files in the last checkpoint.
  std::vector<std::string> states(const std::string& output) const {
    std::vector<std::string> hashes;
    for (const CheckpointFile& file : open_checkpoint(checkpoint(output, 6)).manifest.files) {
      if (file.name != config_file_name) hashes.push_back(file.hash);
    }
    return hashes;
  }
};

TEST_F(SaveByTime, SavesWhenTheLastSaveBeganLongAgo) {
  using Steps = std::vector<std::int64_t>;
  EXPECT_EQ(saved("default", {}), Steps{6});  // 30 minutes
  EXPECT_EQ(saved("always", {"checkpoint.every_minutes=1e-9", "checkpoint.keep=10"}), (Steps{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(saved("never", {"checkpoint.every_minutes=0"}), Steps{6});
  EXPECT_EQ(saved("not by steps", {"checkpoint.every_minutes=1e-9", "checkpoint.interval=-1"}), Steps{});
  EXPECT_EQ(saved("rarely", {"checkpoint.every_minutes=60", "checkpoint.interval=4"}), (Steps{4, 6}));
  EXPECT_EQ(losses("always"), losses("default"));
  EXPECT_EQ(states("always"), states("default"));
}

}  // namespace
}  // namespace ringtrain::testing
