// The state of a run as global tensors by name, to and from disk: state.h5 holds weights/NAME, first_moment/NAME and
// second_moment/NAME, whole and contiguous, whatever the mesh that wrote them; every mesh opens them. Moments reach
// rank 0 in bounded slices, through the world communicator.
#pragma once

#include <string>

#include "train/checkpoint_folder.h"
#include "train/rank_state.h"

namespace ringtrain {

/// Collective over state.world. Rank 0 writes the checkpoint of manifest.step: a new folder under a temporary name, its
/// files, a manifest with their sizes and hashes, everything fsynced, then the rename. manifest.files is filled here.
/// Throws Error(checkpoint) and leaves what was there before; a partial folder is removed.
void save_checkpoint(RankState& state, const CheckpointFolder& folder, CheckpointManifest manifest,
                     const Config& config);

/// Reads the weights into this rank. No communication. Throws Error(checkpoint) that names the tensor and both shapes
/// or types if the checkpoint's model is not this one.
void load_weights(RankState& state, const Checkpoint& checkpoint);
/// Reads this rank's slices of the moments.
void load_moments(RankState& state, const Checkpoint& checkpoint);

}  // namespace ringtrain
