// Which blocks are met by which rank at which hop: a pure function that all ranks evaluate alike. At hop h, rank i
// meets the block of owner (i - h) mod N, if any of its queries may see any of its keys. Pairs that nobody needs are
// left out for sender and receiver at once.
//
// Rank i gets keys and values from its left neighbor if that rank met the block one hop before, otherwise directly from
// the owner. So a maximal run of consecutive ranks that need a block is a run of hops. dk and dv move along the run
// with the block, and from its end directly back to the owner. The run that starts next to the owner carries the
// owner's own share: its sums replace the owner's. A later run starts from zero, and its sums are added, in the order
// of hops.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "framework/sequence/segments.h"
#include "parallel/communicator.h"

namespace ringtrain {

/// One block that one rank meets. Peers are ring ranks, or no_peer.
struct RingStep {
  int hop = 0;  // 0: the rank's own block
  int owner = 0;
  int receive_from = no_peer;   // who sends k and v (hop > 0): the left neighbor, or the owner
  int forward_to = no_peer;     // who receives this block's k and v next, after this rank: the right neighbor
  int gradient_from = no_peer;  // whose dk and dv this rank continues; none: starts from zero (hop 0: from its own)
  int gradient_to = no_peer;  // who receives them: the right neighbor, or at the run's end the owner; hop 0: see below
};

/// What a rank does at one hop.
struct RingHop {
  std::optional<RingStep> step;  // at hop 0 its own block (kept even if nothing is visible)
  int deliver_to = no_peer;      // the rank that starts a run with this rank's k and v at this hop; they are sent to it
  int return_from = no_peer;     // the rank, at the end of a run, that returns this rank's dk and dv at this hop's end
  bool return_replaces = false;  // that run carried the owner's own share; otherwise the returned gradients are added
};

/// By hop; after the last one, a hop without work.
using RingPlan = std::vector<RingHop>;

/// Returns needed[i * N + j]: whether rank i must meet the block of rank j. The diagonal is true.
std::vector<char> ring_needs(const AttentionMask& mask, std::span<const ShardExtents> extents);
/// Returns the block that `rank` meets at a hop, or nothing if it meets none. needed [N, N]. A plan consists of these
/// steps.
std::optional<RingStep> ring_step(std::span<const char> needed, int ranks, int rank, int hop);

/// Returns the plan of `rank`, from needed [N, N].
RingPlan ring_plan(std::span<const char> needed, int ranks, int rank);

}  // namespace ringtrain
