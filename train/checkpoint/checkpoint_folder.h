// The folder `checkpoints` of a run: names of complete checkpoints (step-00000010), of one being written
// (step-00000010.partial), of one being deleted (step-00000010.deleted) and of ones that a resume from an earlier step
// left behind (step-00000010.superseded); which to resume from, and which to delete. A name without ending is complete,
// because it came about by rename and goes by rename.
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
  std::string partial(std::int64_t step) const { return complete(step) + ".partial"; }
  std::string deleted(std::int64_t step) const { return complete(step) + ".deleted"; }
  std::string superseded(std::int64_t step) const { return complete(step) + ".superseded"; }

  /// Return the steps of the complete checkpoints, ascending; none if there is no folder.
  std::vector<std::int64_t> steps() const;
  /// Return the path of the newest checkpoint that verifies, "" if there are none at all. Each damaged one on the way
  /// is told. Throws Error(checkpoint) if all are damaged: a run that has lost everything should not start afresh
  /// unasked.
  std::string newest_intact(const Warn& warn) const;
  /// Makes the folder ready for a run that continues from `step`: removes what a killed run left half-done,
  /// moves later ones aside (told).
  void continue_from(std::int64_t step, const Warn& warn) const;
  /// Gives the partial checkpoint of `step` its name.
  void publish(std::int64_t step) const;
  /// Deletes all complete checkpoints but the newest `keep`. A failure to delete is told, not thrown.
  void prune(std::int64_t keep, const Warn& warn) const;

 private:
  std::string path_;
};

}  // namespace ringtrain
