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

/// A block of this rank's own that it sends straight to a rank which starts a run, and what returns from runs.
struct RingDelivery {
  int hop = 0;  // at which the receiver meets it
  int to = -1;
};
struct RingReturn {
  int hop = 0;  // the hop at whose end it is sent back
  int from = -1;
  bool replaces = false;  // the run carried the owner's own share; else it is added
};

struct RingPlan {
  std::vector<RingStep> steps;  // of this rank, by hop; steps[0] is its own block (kept even if nothing is visible)
  std::vector<RingDelivery>
      deliveries;                   // own k and v to starts of runs (hop >= 1), by hop; includes the right neighbour
  std::vector<RingReturn> returns;  // by hop
};

/// Returns needed[i * N + j]: whether rank i must meet the block of rank j. The diagonal is true.
std::vector<char> ring_needs(const AttentionMask& mask, std::span<const ShardExtents> extents);
/// Returns what `rank` does at a hop, or nothing if it meets no block there. needed [N, N]. A plan's steps are these.
std::optional<RingStep> ring_step(std::span<const char> needed, int ranks, int rank, int hop);

/// Returns the plan of `rank`, from needed [N, N].
RingPlan ring_plan(std::span<const char> needed, int ranks, int rank);

}  // namespace ringtrain
