// The state of a run on disk: global tensors by name, cut into slices, whatever the mesh. A checkpoint holds a file for
// each rank of the run that made it, state-RANK-of-RANKS.h5, with the slices whose optimizer state that rank owned:
// datasets weights/NAME and, by the names of the optimizer's state, first_moment/NAME and so on where a slice is the
// whole tensor, else weights/NAME[BEGIN:END] and so on, elements of the flattened tensor. Its list beside it says where
// they lie (framework/storage/hdf5_datasets.h). Any mesh opens them. No function here communicates.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "framework/copy_stream.h"
#include "train/checkpoint/checkpoint_folder.h"
#include "train/engine/rank_state.h"

namespace ringtrain {

/// Copies this rank's slices of weights and optimizer state to state.snapshot, beside what the stream is given next.
/// Returns an event after the copies: until it was passed nobody may change what they read. On a CPU all is done when
/// the call returns.
CopyStream::Event take_snapshot(RankState& state, CopyStream& copies);
/// Writes this rank's file and its list into a folder that exists and brings both to the disk. Returns the size and
/// hash of each, read back. The values are those of the snapshot; of a state that has none, the present ones, which
/// nobody may change meanwhile. May run on another thread than the rank's. Throws Error(checkpoint); Error(numeric)
/// that names the tensor if a value is not finite.
std::array<CheckpointFile, 2> write_state(RankState& state, const std::string& folder, std::int64_t step);

/// Returns the name of the first of this rank's slices of the weights with a value that is not finite, as a checkpoint
/// would have it; "" if there is none.
std::string nonfinite_weights(RankState& state);

/// Reads this rank's slices of the optimizer's state. Throws Error(checkpoint) that names the tensor if the
/// checkpoint's model is not this one, or its files do not hold each element once. (train/models/load_weights.h reads
/// the weights.)
void load_optimizer_state(RankState& state, const Checkpoint& checkpoint);

}  // namespace ringtrain
