// What a ring's ranks have to do, as planned and as measured: the pairs of queries and keys that attention visits, how
// even they are, and what a rank waited for others. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "framework/sequence/segments.h"

namespace ringtrain {

/// Returns how many pairs of `queries` and `keys` are visible, over so many sequences: as visible_pairs of the
/// segments, within documents. documents: of each sequence, or none.
std::int64_t visible_pairs(const AttentionMask& mask, std::span<const Segment> queries, std::span<const Segment> keys,
                           std::int64_t sequences, std::span<const DocumentStarts> documents);

/// Returns the pairs that each rank's queries see in one sequence of one document: what the layout gives each to do.
std::vector<std::int64_t> pairs_by_rank(const AttentionMask& mask, Layout layout, std::int64_t length, int ranks);

/// Returns the largest of the loads over their mean: 1 is even, and a ring waits for its busiest rank. 1 if all are 0.
template <class Number>
double imbalance(const std::vector<Number>& loads) {
  const double sum = std::accumulate(loads.begin(), loads.end(), 0.0);
  if (sum == 0) return 1;
  return static_cast<double>(std::ranges::max(loads)) * static_cast<double>(loads.size()) / sum;
}

/// What one rank's forward (or backward) passes through the ring were, summed over layers and micro-batches. Seconds
/// are of whoever computes: a GPU's own, not of the host that runs ahead of it.
struct RingLoad {
  std::int64_t pairs = 0;         // that attention visited
  double compute_seconds = 0;     // in the visitor
  std::vector<double> hop_waits;  // [N + 1] seconds, by the hop that had to wait; the last: for the pass's own end
  double wait_seconds() const;
};
using RingLoads = std::array<RingLoad, 2>;  // forward, backward

}  // namespace ringtrain
