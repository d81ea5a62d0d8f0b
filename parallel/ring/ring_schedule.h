// Which blocks meet on which rank at which hop: a pure function that all ranks evaluate alike. At hop h rank i meets
// the block of owner (i - h) mod N, if any of its queries may see any of its keys. Pairs that nobody needs are left out
// for sender and receiver at once.
//
// Rank i gets keys and values from its left neighbour if that one met the block one hop before, else straight from the
// owner. So a maximal run of neighbours that need a block is a run of hops. dk and dv travel along the run with the
// block. From its end they go straight back to the owner. The run that starts next to the owner carries the owner's own
// share: its sums replace the owner's. A later run starts from zero, and its sums are added, in the order of hops.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "framework/sequence/segments.h"

namespace ringtrain {

/// One block that one rank meets. Peers are ring ranks; -1: none.
struct RingStep {
  int hop = 0;  // 0: the rank's own block
  int owner = 0;
  int receive_from = -1;   // who sends k and v (hop > 0): the left neighbour, or the owner
  int forward_to = -1;     // who receives this block's k and v next, after this rank: the right neighbour
  int gradient_from = -1;  // whose dk and dv this rank continues; -1: starts from zero (or from its own, at hop 0)
  int gradient_to = -1;    // who receives them: the right neighbour, or at the run's end the owner; hop 0: see below
};

/// What a rank does at one hop.
struct RingHop {
  std::optional<RingStep> step;  // at hop 0 its own block (kept even if nothing is visible)
  int deliver_to = -1;           // who starts a run with its own k and v at this hop: they go there straight
  int return_from = -1;          // who sends its own dk and dv back at this hop's end, the end of a run
  bool return_replaces = false;  // that run carried the owner's own share; else what returns is added
};

/// By hop, and behind the last one a hop at which nothing is done.
using RingPlan = std::vector<RingHop>;

/// Returns needed[i * N + j]: whether rank i must meet the block of rank j. The diagonal is true.
std::vector<char> ring_needs(const AttentionMask& mask, std::span<const ShardExtents> extents);
/// Returns the block that `rank` meets at a hop, or nothing if it meets none. needed [N, N]. A plan's steps are these.
std::optional<RingStep> ring_step(std::span<const char> needed, int ranks, int rank, int hop);

/// Returns the plan of `rank`, from needed [N, N].
RingPlan ring_plan(std::span<const char> needed, int ranks, int rank);

}  // namespace ringtrain
