// The folder `checkpoints` of a run: names of complete checkpoints (step-00000010), of one being written
// (step-00000010.partial-PROCESS-RANDOM), of one being deleted (.deleted-PROCESS-RANDOM) and of ones that a resume from
// an earlier step left behind (step-00000010.superseded, .superseded-2, ...); which to resume from, and which to
// delete. A name without ending is complete, because it came about by rename and goes by rename. What has another name
// is not ours, and stays.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "framework/config/config.h"
#include "train/checkpoint/checkpoint_manifest.h"

namespace ringtrain {

/// A verified checkpoint: its files are what its manifest says.
struct Checkpoint {
  std::string path;
  CheckpointManifest manifest;
  Config config;  // of the run that made it
};

/// Verifies and describes the checkpoint at path: a checkpoint's folder, or a run's folder, whose newest one is taken.
/// Throws Error(checkpoint) that names what is wrong.
Checkpoint open_checkpoint(const std::string& path);

class CheckpointFolder {
 public:
  /// Told of something that a person should know and that is no error.
  using Warn = std::function<void(const std::string&)>;

  explicit CheckpointFolder(std::string path) : path_(std::move(path)) {}
  const std::string& path() const { return path_; }
  std::string complete(std::int64_t step) const;

  /// Return the steps of the complete checkpoints, ascending; none if there is no folder.
  std::vector<std::int64_t> steps() const;
  /// Return the path of the newest checkpoint that verifies, "" if there are none at all. Each damaged one on the way
  /// is told. Throws Error(checkpoint) if all are damaged: a run that has lost everything should not start afresh
  /// unasked.
  std::string newest_intact(const Warn& warn) const;
  /// Makes the folder ready for a run that continues from `step`: removes what a killed run left half-done,
  /// moves later ones aside (told). Nobody else may write into it.
  void continue_from(std::int64_t step, const Warn& warn) const;
  /// Makes the folder in which the checkpoint of `step` is written. Return its path.
  std::string make_partial(std::int64_t step) const;
  /// Gives that folder, which is whole by now, its name. What stands there is moved aside.
  void publish(std::int64_t step, const std::string& partial) const;
  /// Deletes all complete checkpoints but the newest `keep`. A failure to delete is told, not thrown.
  void prune(std::int64_t keep, const Warn& warn) const;

 private:
  void move_aside(std::int64_t step, std::string* to = nullptr) const;
  std::string path_;
};

}  // namespace ringtrain
