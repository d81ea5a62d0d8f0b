// The weights of a checkpoint of a run as a WeightSource.
#pragma once

#include <memory>

#include "train/checkpoint/checkpoint_folder.h"
#include "train/models/weight_source.h"

namespace ringtrain {

/// Returns a reader of the checkpoint, which must outlive it. Throws Error(checkpoint).
std::unique_ptr<WeightSource> read_checkpoint_weights(const Checkpoint& checkpoint);

}  // namespace ringtrain
