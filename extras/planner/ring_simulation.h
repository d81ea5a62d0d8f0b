// Simulates passes of a ring. Each rank follows the product's schedule: in each turn, it posts the next block's
// transfer, computes its current block (in backward part by part), and waits for what has not arrived. A message moves
// when both sides have posted it and the links of both are free, one message at a time in each direction. All ranks
// finish a turn before any rank begins the next one, so the messages for which a rank waits are known when it waits.
// Pure, no communication.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "extras/planner/hardware.h"
#include "extras/planner/rates.h"
#include "extras/planner/ring_work.h"

namespace ringtrain {

/// Seconds and bytes of a pass.
struct PassCosts {
  double pair_seconds = 0;     // of one visible pair
  double visit_seconds = 0;    // of each kernel call, in addition
  double key_value_bytes = 0;  // of one token, with its document id
  double gradient_bytes = 0;   // of one token; 0: a forward pass
  double overlap_seconds = 0;  // of other work at the end of backward, while the last gradients return to their owners
};

/// The results of a pass, by rank of the ring.
struct PassTimes {
  std::vector<double> compute;  // seconds in kernels
  std::vector<double> wait;     // seconds that nothing hides
};

/// A ring in the world: its ranks' work, and their positions.
struct PlacedRing {
  const RingWork& work;
  const Hardware& hardware;
  std::int64_t first_rank = 0;       // rank 0 of the ring in the world; its other ranks follow
  SharedProcessors processors = {};  // those that its ranks share; while some are idle, the others are faster
};

/// Simulates a pass. clocks: by rank, when it begins; set to when it ends. Throws Error(usage) for work that takes
/// longer than longest_seconds.
PassTimes simulate_pass(const PlacedRing& ring, const PassCosts& costs, std::span<double> clocks);

}  // namespace ringtrain
