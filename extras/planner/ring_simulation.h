// Simulates passes of a ring. Each rank goes through the turns of the product's schedule: it posts the next block's
// transfer, computes the block that it has (in backward part by part), and waits for what has not come. A message moves
// when both sides have posted it and the links of both are free, one message at a time each way. All ranks take a turn
// before any rank takes the next one, so what a rank waits for is known when it waits. Pure, no communication.
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
  double visit_seconds = 0;    // of each kernel call besides
  double key_value_bytes = 0;  // of one token, with its document id
  double gradient_bytes = 0;   // of one token; 0: a forward pass
  double overlap_seconds = 0;  // of other work at the end of backward, while the last gradients return to their owners
};

/// What a pass came to, by rank of the ring.
struct PassTimes {
  std::vector<double> compute;  // seconds in kernels
  std::vector<double> wait;     // seconds that nothing hid
};

/// A ring in the world: what its ranks meet, and where they lie.
struct PlacedRing {
  const RingWork& work;
  const Hardware& hardware;
  std::int64_t first_rank = 0;       // rank 0 of the ring in the world, whose other ranks follow it
  SharedProcessors processors = {};  // those that its ranks share; while some have no work, the others are faster
};

/// Simulates a pass. clocks: by rank, when it begins; then when it ends. Throws Error(usage) for work that takes longer
/// than longest_seconds.
PassTimes simulate_pass(const PlacedRing& ring, const PassCosts& costs, std::span<double> clocks);

}  // namespace ringtrain
