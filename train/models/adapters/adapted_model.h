// Adapters and the base beside which they stand, as one model: a base is named by path and hash, found again, and its
// weights and those of the adapters are read together, as two or as their sum.
#pragma once

#include <set>
#include <string>

#include "train/checkpoint/checkpoint_manifest.h"
#include "train/models/model_source.h"

namespace ringtrain {

/// Returns what a person calls the base of adapters, or a model that has none: its name in the hub where it lies in the
/// hub's cache, else the path by which the user named it.
std::string base_name(const ModelSource& source);
/// Returns how a checkpoint names the base of adapters that begin with this model: the model itself, or the base of its
/// own adapters. Reads all of its weights. Throws Error(usage) if its path is not UTF-8, which is all that a
/// checkpoint's manifest and PEFT's config can hold.
BaseModel base_of(const ModelSource& source);

/// Opens the base of a checkpoint of adapters, at `of`: the one that its run keeps (kept_base.h), else the one at the
/// base's path. Throws Error(checkpoint) if it is not there or is another one. The files of a base that is a checkpoint
/// are hashed in any case.
ModelSource open_base(const BaseModel& base, const std::string& of);

/// Returns adapters (whose path, model and reader are set) with their base. own: the parameters that `adapters` holds;
/// all others are the base's.
ModelSource with_adapters(ModelSource base, ModelSource adapters, std::set<std::string> own);

/// Returns the model without adapters, whose weights are W + (alpha / r) B A: in double, rounded once where they are
/// read. Throws Error(usage) if it has none.
ModelSource merged(ModelSource source);

}  // namespace ringtrain
