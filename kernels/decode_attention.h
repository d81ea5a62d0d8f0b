// Attention of one query over many keys: a decode step of generation (Dao et al., "Flash-Decoding for long-context
// inference", 2023). The keys are cut into fixed pieces. Each piece yields a partial state (o, m, l), and states are
// combined by their log-sum-exp in a fixed tree, so bits depend only on the keys, never on the number of threads. Such
// a state is that of kernels/attention.h; ranks with different keys combine theirs in the same way. Query head h reads
// key/value head h / (H / G). No communication.
#pragma once

#include "kernels/attention.h"

namespace ringtrain {

/// Keys per piece. It affects the results: it fixes the order of sums.
inline constexpr std::int64_t decode_piece_keys = 128;

/// Returns how many elements of workspace decode_attention needs for at most T keys: H * (D + 2) for each piece.
std::int64_t decode_attention_workspace(const AttentionShape& shape, std::int64_t T);

/// Sets state (B = 1, one query: o [1, 1, H, D], m and l [1, H, 1]) to that of q[H, D] over the keys k[T, G, D] and the
/// values v[T, G, D], all of which it sees; T may be 0. q, k, and v have one dtype; the state and the workspace (rank
/// 1, its content is irrelevant) have its accumulator. On a GPU, the dtype is float32 or bfloat16, and T is at most
/// 8,388,480.
void decode_attention(Stream& stream, const AttentionShape& shape, const ConstTensorView& q, const ConstTensorView& k,
                      const ConstTensorView& v, const AttentionState& state, const TensorView& workspace);

/// Sets `into` to the state of the keys of both, for the same query heads.
void combine_attention(Stream& stream, const AttentionState& into, const AttentionState& other);

}  // namespace ringtrain
