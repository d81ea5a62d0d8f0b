// A pass of a ring whose ranks share processors, simulated event by event: while some ranks wait, the others compute
// faster. A rank that is not in the pass yet, or no longer, computes elsewhere and holds a core, too. A message that a
// processor carries itself (TCP, a copy between processes) takes some of its time. Ranks do what RingSimulation says.
// For the few ranks of a machine: an event costs a look at each. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "train/planning/pass_costs.h"
#include "train/planning/rates.h"
#include "train/planning/ring_work.h"

namespace ringtrain {

/// Longer rings are simulated with what each rank gets while all compute.
inline constexpr int largest_shared_ring = 64;

/// Simulates a pass. compute_seconds: of a visit of so many pairs, while all ranks compute.
PassTimes shared_pass(const RingWork& work, const SharedProcessors& processors,
                      const std::function<double(int rank, int visit, std::int64_t pairs)>& compute_seconds,
                      const std::function<double(int rank)>& overlap_seconds, const TimeMessage& time_message,
                      const PassCosts& costs, std::span<double> clocks);

}  // namespace ringtrain
