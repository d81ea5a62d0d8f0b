// Sets a rank's weights: from any kind of source, slice by slice through the rank's staging buffer, or to new ones.
#pragma once

#include "train/engine/rank_state.h"
#include "train/models/model_source.h"

namespace ringtrain {

/// Sets the weights of this rank: the model's, and the optimizer's if they are separate. Without an optimizer, the rank
/// sets all that it holds. With one, of the trained weights it sets only those that it updates, and layers gather the
/// others before their first use. source: null for a new model. Adapters that the source does not have are new ones;
/// what is new depends only on the seed. With a large model, rank 0 shows its progress on stderr. Does not communicate.
/// Throws Error(checkpoint), which names the tensor, if the source's model is not this one, or a value is not finite.
void load_weights(RankState& state, const ModelSource* source, std::uint64_t seed = 0);

}  // namespace ringtrain
