// Simulates passes of a ring. Each rank goes through the turns of the product's schedule: it posts the next block's
// transfer, computes the block that it has (in backward part by part), and waits for what has not come. A message moves
// when both sides have posted it and the links of both are free, one message at a time each way. Pure, no
// communication.
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
  double bytes = 0;             // of all messages
  std::int64_t events = 0;      // kernel calls and messages
};

/// What goes wrong in a simulated run.
struct Disturbance {
  double jitter = 0;  // the standard deviation of the logarithm of a kernel call's time
  std::uint64_t seed = 1;
  struct Straggler {
    std::int64_t rank = 0;  // of the world
    double factor = 1;      // its work takes so many times as long
  };
  struct SlowLink {
    std::int64_t from = 0, to = 0;  // ranks of the world
    double factor = 1;              // its messages take so many times as long
  };
  std::vector<Straggler> stragglers = {};
  std::vector<SlowLink> slow_links = {};
  bool none() const { return jitter == 0 && stragglers.empty() && slow_links.empty(); }
};

class RingSimulation {
 public:
  /// Ranks of longer rings are simulated with what each gets of a machine's cores while all compute.
  static constexpr int largest_shared_ring = 64;

  /// first_rank: rank 0 of the ring in the world, whose other ranks follow it. processors: those that its ranks share;
  /// while some wait, the others compute faster. All must outlive it.
  RingSimulation(const RingWork& work, const Hardware& hardware, std::int64_t first_rank,
                 const Disturbance& disturbance, const SharedProcessors& processors = {});

  /// Simulates a pass. clocks: by rank, when it begins; then when it ends. call: tells one pass's jitter from
  /// another's. Throws Error(usage) for work that takes longer than longest_seconds.
  PassTimes pass(const PassCosts& costs, std::span<double> clocks, std::uint64_t call) const;

  /// Returns how much longer than others a rank of the ring computes.
  double slowness(int rank) const { return slowness_[rank]; }

 private:
  class Pass;
  class SteppedPass;
  class SharedPass;
  struct Link {
    const LinkLevel* level = nullptr;
    double factor = 1;  // messages take so many times as long
  };
  Link link_between(int from, int to) const;
  double jitter(std::uint64_t call, int rank, int visit) const;

  const RingWork& work_;
  const Hardware& hardware_;
  const std::int64_t first_rank_;
  const Disturbance& disturbance_;
  const SharedProcessors processors_;
  std::vector<double> slowness_;  // by rank
  std::vector<Link> from_left_;   // by rank: from its left neighbour
};

}  // namespace ringtrain
