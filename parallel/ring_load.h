// What a ring's ranks have to do: the pairs of queries and keys that attention visits, by rank, and how even that is.
// Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "framework/segments.h"
#include "kernels/attention.h"

namespace ringtrain {

/// Return how many pairs of `queries` and `keys` are visible, over all sequences [B]: as visible_pairs of the segments,
/// within documents. Documents, if any, are in host memory.
std::int64_t visible_pairs(const AttentionMask& mask, const AttentionTokens& queries, const AttentionTokens& keys,
                           std::int64_t sequences);

}  // namespace ringtrain
