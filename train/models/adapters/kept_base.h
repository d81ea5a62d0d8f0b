// A run with adapters needs its base for as long as anybody reads the adapters, but the run that made the base deletes
// its old checkpoints (checkpoint.keep). So, if the base is a checkpoint, a run keeps it in its own folder,
// RUN/base/step-N: as hard links, which take no space, or, if the file system does not allow them, as copies. No run
// deletes models from elsewhere, so they are not kept.
#pragma once

#include <optional>
#include <string>

#include "train/checkpoint/checkpoint_manifest.h"
#include "train/models/model_source.h"

namespace ringtrain {

/// Returns the path at which a run keeps a base that was at this path.
std::string kept_base_path(const std::string& run_folder, const std::string& base_path);

/// Keeps the base of the adapters that begin with this model: the model itself, or the base of its own adapters. Does
/// nothing if it is not a checkpoint or is kept already. Requires that the run's folder exists, and that the source
/// still holds the checkpoint (ModelSource::release()). Throws Error(checkpoint) if the run's folder cannot be written
/// or cannot hold the copies. No communication: only rank 0 calls it.
void keep_base(const ModelSource& source, const std::string& run_folder);

/// Returns a warning if a run's base is gone. Never throws an Error. No communication.
std::optional<std::string> base_warning(const BaseModel& base, const std::string& run_folder);

}  // namespace ringtrain
