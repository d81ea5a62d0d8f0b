// The folder `checkpoints` of a run: the names of complete checkpoints (step-00000010), of one being written
// (step-00000010.partial-PROCESS-RANDOM), of one being deleted (.deleted-PROCESS-RANDOM), and of those that a resume
// from an earlier step left behind (step-00000010.superseded, .superseded-2, ...); which one to resume from, and which
// to delete. A name without an ending is complete, because a rename creates it and a rename removes it. Anything with
// another name is not the run's, and stays. Until the first checkpoint exists, a file in the folder says that this run
// saved nothing yet: an empty folder without it may be a volume that is not mounted.
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

/// Called with messages that a person should read but that are not errors, one line each.
using Log = std::function<void(const std::string&)>;

/// A verified checkpoint: its files match its manifest, and its name, manifest, config, and state agree.
struct Checkpoint {
  std::string path;
  CheckpointManifest manifest;
  Config config;               // of the run that made it
  std::shared_ptr<File> hold;  // while it is open, no run deletes the checkpoint

  /// Allows its deletion again: the caller has read all of it.
  void release() const {
    if (hold) hold->close();
  }
};

/// Verifies, describes, and holds the checkpoint at path: a checkpoint's folder, or a run's folder, of which it takes
/// the newest one, even if that run deletes others meanwhile. Throws Error(checkpoint), which names the problem,
/// including a model other than `model`.
Checkpoint open_checkpoint(const std::string& path, const ModelDefinition& model = transformer_definition());
/// Returns whether path is a run's folder, not a checkpoint.
bool is_run_folder(const std::string& path);
/// Throws Error(usage) if path is in a folder that a run makes in its own: its checkpoints, tokenizer, or base, whose
/// names belong to the run and follow its rules. flag: names the path in the message.
void refuse_within_run(const std::string& path, const std::string& flag);
/// Throws Error(checkpoint) unless the files hold each element of the model's state exactly once, at the checkpoint's
/// step. (An opened checkpoint has been checked.)
void check_state(const Checkpoint& checkpoint, const ModelDefinition& model = transformer_definition());
/// Verifies a checkpoint, or all complete ones of a run's folder except those that the run deletes meanwhile: every
/// hash, config, and state. Reports each one as good or damaged. Throws Error(checkpoint) if there is none, or, with
/// the first one's message, if one is damaged. base: throws Error(checkpoint) if a checkpoint needs a model in another
/// folder that has changed.
void verify_checkpoints(const std::string& path, const Log& report, const std::function<void(const Checkpoint&)>& base,
                        const ModelDefinition& model = transformer_definition());

class CheckpointFolder {
 public:
  explicit CheckpointFolder(std::string path) : path_(std::move(path)) {}
  const std::string& path() const { return path_; }
  std::string complete(std::int64_t step) const;

  /// Returns the steps of the complete checkpoints in ascending order; empty if there is no folder.
  std::vector<std::int64_t> steps() const;
  /// Returns names that look like a checkpoint's but are not valid, such as step-99 instead of step-00000099.
  std::vector<std::string> misnamed() const;
  /// Returns whether the run that made the folder recorded that it has saved nothing yet.
  bool says_nothing_saved() const;
  /// Records that nothing is saved yet. The folder must exist.
  void say_nothing_saved() const;
  /// Returns the newest checkpoint that opens, nothing if there are none at all. Warns about each damaged or misnamed
  /// one. Throws Error(checkpoint) if all are damaged, because a run that has lost everything should not start from the
  /// beginning unasked, or if one holds another model.
  std::optional<Checkpoint> newest_intact(const Log& warn,
                                          const ModelDefinition& model = transformer_definition()) const;
  /// Prepares the folder for a run that continues from `step`: removes what a killed run left incomplete, and moves
  /// later checkpoints aside (with a warning). Deletes no checkpoint. Nobody else may write into the folder.
  void continue_from(std::int64_t step, const Log& warn) const;
  /// Makes the folder for writing the checkpoint of `step`. Returns its path.
  std::string make_partial(std::int64_t step) const;
  /// Gives that folder, which is complete now, its final name. Moves aside anything that has this name.
  void publish(std::int64_t step, const std::string& partial) const;
  /// Deletes all checkpoints of the run that made `saved`, except the newest `keep`, and except those that somebody is
  /// reading, for which it warns and which stay until a later call. Warns about failures to delete instead of throwing.
  /// Also deletes the record that nothing was saved. Anything with a checkpoint's name that does not belong to this run
  /// (a user's folder, an export, another run's checkpoint, one with other files in it, one whose manifest is damaged)
  /// stays and does not count, and is warned about unless it is in `reported`.
  void prune(std::int64_t keep, const CheckpointManifest& saved, std::set<std::string>& reported,
             const Log& warn) const;

 private:
  std::string nothing_saved_path() const { return path_ + "/nothing-saved-yet"; }
  /// Renames a complete checkpoint to an unused name. Returns its last component.
  std::string set_aside(std::int64_t step) const;
  void warn_of_misnamed(std::int64_t chosen, const Log& warn) const;

  std::string path_;
};

}  // namespace ringtrain
