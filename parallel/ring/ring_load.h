// The work of a ring's ranks, as planned and as measured: the pairs of queries and keys that attention visits, their
// balance, and a rank's waits for others. Pure.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "framework/sequence/segments.h"

namespace ringtrain {

/// Returns how many pairs of `queries` and `keys` are visible, over this many sequences: visible_pairs of the segments,
/// within documents. documents: of each sequence, or empty.
std::int64_t visible_pairs(const AttentionMask& mask, std::span<const Segment> queries, std::span<const Segment> keys,
                           std::int64_t sequences, std::span<const DocumentStarts> documents);

/// Returns the pairs that each rank's queries see in one sequence of one document: each rank's work in this layout.
std::vector<std::int64_t> pairs_by_rank(const AttentionMask& mask, Layout layout, std::int64_t length, int ranks);

/// Returns the largest load divided by their mean: 1 is even, and a ring waits for its busiest rank. 1 if all are 0.
template <class Number>
double imbalance(const std::vector<Number>& loads) {
  const double sum = std::accumulate(loads.begin(), loads.end(), 0.0);
  if (sum == 0) return 1;
  return static_cast<double>(std::ranges::max(loads)) * static_cast<double>(loads.size()) / sum;
}

/// The work of one rank's forward (or backward) passes through the ring, summed over layers and micro-batches. Seconds
/// are those of the device that computes: a GPU's own, not those of the host that runs ahead of it.
struct RingLoad {
  std::int64_t pairs = 0;         // visited by attention
  double compute_seconds = 0;     // in the visitor
  std::vector<double> hop_waits;  // [N + 1] seconds, by the hop that had to wait; the last: for the pass's own end
  double wait_seconds() const { return std::accumulate(hop_waits.begin(), hop_waits.end(), 0.0); }
};
using RingLoads = std::array<RingLoad, 2>;  // forward, backward

}  // namespace ringtrain
