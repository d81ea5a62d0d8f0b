// A discrete-event simulation of a ring's passes. Each rank goes through the rounds of the product's schedule: it posts
// the next block's transfer, computes the block it has (in backward part by part), and waits for what has not come. A
// message moves when both sides have posted it and the links of both are free, one message at a time each way. Rounds
// are simulated in order, all ranks at once: no event of a round depends on a later one. Pure, no communication.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "train/planning/hardware.h"
#include "train/planning/pass_costs.h"
#include "train/planning/rates.h"
#include "train/planning/ring_work.h"

namespace ringtrain {

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
  /// first_rank: rank 0 of the ring in the world, whose other ranks follow it. processors: those that its ranks share,
  /// of which costs know no more than what each gets while all compute. All must outlive it.
  RingSimulation(const RingWork& work, const Hardware& hardware, std::int64_t first_rank,
                 const Disturbance& disturbance, const SharedProcessors& processors = {});

  /// Simulates a pass. clocks: by rank, when it begins; then when it ends. call: tells one pass's jitter from
  /// another's.
  PassTimes pass(const PassCosts& costs, std::span<double> clocks, std::uint64_t call) const;

  /// Return how much longer than others a rank of the ring computes.
  double slowness(int rank) const { return slowness_[static_cast<std::size_t>(rank)]; }

 private:
  struct Pass;
  MessageTime message_time(int from, int to, double bytes) const;
  double compute_seconds(const PassCosts& costs, std::uint64_t call, int rank, int visit, std::int64_t pairs) const;
  double jitter(std::uint64_t call, int rank, int visit) const;

  const RingWork& work_;
  const Hardware& hardware_;
  const std::int64_t first_rank_;
  const Disturbance& disturbance_;
  const SharedProcessors processors_;
  std::vector<double> slowness_;  // by rank
};

}  // namespace ringtrain
