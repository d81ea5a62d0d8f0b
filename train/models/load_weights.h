// Loads a model's weights, from any kind of source, into a rank: slice by slice through the rank's staging buffer.
#pragma once

#include "train/engine/rank_state.h"
#include "train/models/model_source.h"

namespace ringtrain {

/// Reads the weights into this rank: the model's, and the optimizer's if they are separate. Rank 0 shows the progress
/// of reading a large model on stderr. Adapters that the source does not have are new ones, from this seed. Does not
/// communicate. Throws Error(checkpoint), which names the tensor, if the source's model is not this one, or a value is
/// not finite.
void load_weights(RankState& state, const ModelSource& source, std::uint64_t seed = 0);

}  // namespace ringtrain
