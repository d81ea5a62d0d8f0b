// The folder `checkpoints` of a run: names of complete checkpoints (step-00000010), of one being written
// (step-00000010.partial-PROCESS-RANDOM), of one being deleted (.deleted-PROCESS-RANDOM) and of ones that a resume from
// an earlier step left behind (step-00000010.superseded, .superseded-2, ...); which to resume from, and which to
// delete. A name without ending is complete, because it came about by rename and goes by rename. What has another name
// is not ours, and stays. Until the first one is there, the folder says that this run saved nothing yet: an empty
// folder alone may be a volume that is not mounted.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "framework/config/config.h"
#include "framework/storage/files.h"
#include "layers/model/model_definition.h"
#include "train/checkpoint/checkpoint_manifest.h"

namespace ringtrain {

/// Gets what a person should know and that is not an error, a line each.
using Log = std::function<void(const std::string&)>;

/// A verified checkpoint: its files are what its manifest says, and its name, manifest, config and state agree.
struct Checkpoint {
  std::string path;
  CheckpointManifest manifest;
  Config config;               // of the run that made it
  std::shared_ptr<File> hold;  // while it is open, no run deletes the checkpoint

  /// Lets it be deleted again: all of it has been read.
  void release() const {
    if (hold) hold->close();
  }
};

/// Verifies, describes and holds the checkpoint at path: a checkpoint's folder, or a run's folder, whose newest one is
/// taken, also if that run deletes others meanwhile. Throws Error(checkpoint) that names what is wrong, another model
/// than `model` included.
Checkpoint open_checkpoint(const std::string& path, const ModelDefinition& model = transformer_definition());
/// Returns whether path is a run's folder, and no checkpoint.
bool is_run_folder(const std::string& path);
/// Throws Error(usage) if path lies in a folder that a run makes in its own: its checkpoints, tokenizer, or base, where
/// names are the run's own and what has them goes by its rules. flag: what names the path, for the sentence.
void refuse_within_run(const std::string& path, const std::string& flag);
/// Throws Error(checkpoint) unless the files hold each element of the state of the checkpoint's model once, and are of
/// its step. (An opened checkpoint has been checked.)
void check_state(const Checkpoint& checkpoint, const ModelDefinition& model = transformer_definition());
/// Verifies a checkpoint, or all complete ones of a run's folder, but for those that the run deletes meanwhile: every
/// hash, config, and state. Tells each that is good or damaged. Throws Error(checkpoint) if there is none, or if one is
/// damaged, with the first one's sentence. base: throws Error(checkpoint) if a checkpoint needs a model that lies
/// elsewhere and that is not what it was.
void verify_checkpoints(const std::string& path, const Log& report, const std::function<void(const Checkpoint&)>& base,
                        const ModelDefinition& model = transformer_definition());

class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::string path) : path_(std::move(path)) {}
  const std::string& path() const { return path_; }
  std::string complete(std::int64_t step) const;

  /// Returns the steps of the complete checkpoints, ascending; none if there is no folder.
  std::vector<std::int64_t> steps() const;
  /// Returns the names like a checkpoint's that none can have, such as step-99 for step-00000099.
  std::vector<std::string> misnamed() const;
  /// Returns whether the run that made the folder says that it saved nothing yet.
  bool says_nothing_saved() const;
  /// Says so. Needs the folder.
  void say_nothing_saved() const;
  /// Returns the newest checkpoint that opens, nothing if there are none at all. Each damaged or misnamed one is told.
  /// Throws Error(checkpoint) if all are damaged: a run that has lost everything should not start afresh unasked; or if
  /// one is of another model.
  std::optional<Checkpoint> newest_intact(const Log& warn,
                                          const ModelDefinition& model = transformer_definition()) const;
  /// Makes the folder ready for a run that continues from `step`: removes what a killed run left half-done,
  /// moves later ones aside (told). Deletes none. Nobody else may write into it.
  void continue_from(std::int64_t step, const Log& warn) const;
  /// Makes the folder in which the checkpoint of `step` is written. Returns its path.
  std::string make_partial(std::int64_t step) const;
  /// Gives that folder, which is whole by now, its name. What stands there is moved aside.
  void publish(std::int64_t step, const std::string& partial) const;
  /// Deletes all checkpoints of the run that made `saved` but the newest `keep` and those that somebody reads, which is
  /// told and lasts until a later time. A failure to delete is told, not thrown. No more says that nothing was saved.
  /// What has a checkpoint's name and is none of this run (a user's folder, an export, another run's checkpoint, one
  /// with other files in it, one whose manifest is damaged) stays, does not count, and is told unless it is in `told`.
  void prune(std::int64_t keep, const CheckpointManifest& saved, std::set<std::string>& reported,
             const Log& warn) const;

 private:
  std::string nothing_saved_path() const { return path_ + "/nothing-saved-yet"; }
  /// Renames a complete checkpoint, to a name that nothing has. Returns its last component.
  std::string set_aside(std::int64_t step) const;
  void warn_of_misnamed(std::int64_t chosen, const Log& warn) const;

  std::string path_;
};

}  // namespace ringtrain
