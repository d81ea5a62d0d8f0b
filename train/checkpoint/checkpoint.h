// The state of a run on disk: global tensors by name, cut into slices, independent of the mesh. A checkpoint holds one
// file for each rank of the run that made it, state-RANK-of-RANKS.h5, with the slices whose optimizer state that rank
// owned, and its frozen slices: datasets weights/NAME and, by the names of the optimizer's state, first_moment/NAME and
// so on if the slice is the whole tensor; otherwise weights/NAME[BEGIN:END] and so on, with elements of the flattened
// tensor. The file's list, next to it, gives their offsets (framework/storage/hdf5_datasets.h). Any mesh can open them.
// No function here communicates.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "framework/copy_stream.h"
#include "train/checkpoint/checkpoint_folder.h"
#include "train/engine/rank_state.h"

namespace ringtrain {

/// Copies this rank's slices of weights and optimizer state to state.snapshot, concurrently with the stream's next
/// work. Returns an event after the copies: the sources must not change before it has passed. On a CPU, and from the
/// host memory of an offloaded optimizer, the copies are done when the call returns.
CopyStream::Event take_snapshot(RankState& state, CopyStream& copies);
/// Writes this rank's file and its list into an existing folder and syncs both to disk. Returns the size and hash of
/// each, as read back. The values are the snapshot's, or, if the state has none, the current ones, which must not
/// change meanwhile. May run on a thread other than the rank's. Throws Error(checkpoint); throws Error(numeric), which
/// names the tensor, if a value is not finite.
std::array<CheckpointFile, 2> write_state(RankState& state, const std::string& folder, std::int64_t step);

/// Returns the name of the first of this rank's trained slices with a value that is not finite in a checkpoint's dtype;
/// "" if there is none.
std::string nonfinite_weights(RankState& state);

/// Reads this rank's slices of the optimizer's state. Throws Error(checkpoint), which names the tensor, if the
/// checkpoint's model is not this one, or its files do not hold each element exactly once. (train/models/load_weights.h
/// reads the weights.)
void load_optimizer_state(RankState& state, const Checkpoint& checkpoint);

}  // namespace ringtrain
