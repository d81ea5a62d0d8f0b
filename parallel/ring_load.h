// What a ring's ranks have to do, as planned and as measured: the pairs of queries and keys that attention visits, how
// even they are, and what a rank waited for others. Pure.
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

/// Return the pairs that each rank's queries see in one sequence of one document: what the layout gives each to do.
std::vector<std::int64_t> pairs_by_rank(const AttentionMask& mask, Layout layout, std::int64_t length, int ranks);

/// Return the largest of the loads over their mean: 1 is even, and a ring waits for its busiest rank. 1 if all are 0.
double imbalance(std::span<const std::int64_t> loads);
double imbalance(std::span<const double> loads);

/// What one rank's forward (or backward) passes through the ring were, summed over layers and micro-batches.
struct RingPassLoad {
  std::int64_t pairs = 0;         // that attention visited
  double compute_seconds = 0;     // in the visitor
  std::vector<double> hop_waits;  // [N + 1] seconds, by the hop that had to wait; the last: for the pass's own end
  double wait_seconds() const;
};
struct RingLoad {
  RingPassLoad forward, backward;
};

}  // namespace ringtrain
