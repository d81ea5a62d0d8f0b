// Adapters and their base as one model: a base is identified by path and hash and found again, and its weights and the
// adapters' are read together, either separately or as a sum.
#pragma once

#include <set>
#include <string>

#include "train/checkpoint/checkpoint_manifest.h"
#include "train/models/model_source.h"

namespace ringtrain {

/// Returns a person's name for the base of adapters, or for a model without a base: its name in the hub if it is in the
/// hub's cache, otherwise the path that the user gave.
std::string base_name(const ModelSource& source);
/// Returns a checkpoint's record of the base of adapters that begin with this model: the model itself, or the base of
/// its own adapters. Reads all of its weights. Throws Error(usage) if its path is not UTF-8, because a checkpoint's
/// manifest and PEFT's config can hold nothing else.
BaseModel base_of(const ModelSource& source);

/// Opens the base of a checkpoint of adapters, at `adapters_path`: the one that its run keeps (kept_base.h), otherwise
/// the one at the base's path. Throws Error(checkpoint) if it does not exist or is a different one. The files of a base
/// that is a checkpoint are always hashed.
ModelSource open_base(const BaseModel& base, const std::string& adapters_path);

/// Combines adapters (with path, model, and reader set) with their base. own_parameters: the parameters that `adapters`
/// holds; all others are the base's.
ModelSource with_adapters(ModelSource base, ModelSource adapters, std::set<std::string> own_parameters);

/// Returns the model without adapters, whose weights are W + (alpha / r) B A: in double, rounded once when they are
/// read. Throws Error(usage) if it has none.
ModelSource merged(ModelSource source);

}  // namespace ringtrain
