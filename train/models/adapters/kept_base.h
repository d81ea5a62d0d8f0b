// A run with adapters needs its base for as long as anybody reads the adapters, and the run that made the base deletes
// its old checkpoints (checkpoint.keep). So a run keeps a checkpoint that is its base in its own folder,
// RUN/base/step-N: by hard links, which take no space, or, where the file system refuses these, by copies. Models from
// elsewhere are deleted by no run, and are not kept.
#pragma once

#include <optional>
#include <string>

#include "train/checkpoint/checkpoint_manifest.h"
#include "train/models/model_source.h"

namespace ringtrain {

/// Returns the path at which a run keeps a base that was at this path.
std::string kept_base_path(const std::string& run_folder, const std::string& base_path);

/// Keeps the base of the adapters that begin with this model: the model itself, or what its own adapters have for a
/// base. Does nothing if it is no checkpoint or is kept already. Requires that the run's folder exists, and that the
/// source still holds the checkpoint (ModelSource::release()). Throws Error(checkpoint) if the run's folder cannot be
/// written or cannot hold the copies. No communication: for rank 0.
void keep_base(const ModelSource& source, const std::string& run_folder);

/// Returns a warning if a run's base is gone. Never throws an Error. No communication.
std::optional<std::string> base_warning(const BaseModel& base, const std::string& run_folder);

}  // namespace ringtrain
