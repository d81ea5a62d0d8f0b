// Weights of a model, wherever it lies, into a rank: slice by slice through the rank's staging buffer.
#pragma once

#include "train/engine/rank_state.h"
#include "train/models/model_source.h"

namespace ringtrain {

/// Reads the weights into this rank: the model's, and the optimizer's where it has its own. Reading a large model is
/// shown on stderr by rank 0. Adapters that the source has not are new ones, of this seed. Does not communicate. Throws
/// Error(checkpoint) that names the tensor if the source's model is not this one, or a value is not finite.
void load_weights(RankState& state, const ModelSource& source, std::uint64_t seed = 0);

}  // namespace ringtrain
