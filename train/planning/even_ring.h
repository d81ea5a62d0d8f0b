// A pass of an even ring, simulated: ranks differ by their place alone, so every block comes from the left neighbour
// and goes on to the right one, and one time says when a link between neighbours is free. A hop is a few loops over all
// ranks, so that the 4.3 billion blocks of 65,536 ranks take seconds. Message for message it is RingSimulation's own
// pass; tests hold the two against each other. Pure.
#pragma once

#include <span>

#include "train/planning/pass_costs.h"
#include "train/planning/ring_work.h"

namespace ringtrain {

/// Simulates a pass of a ring that is even(), as RingSimulation::pass() does. slowness: by rank.
PassTimes even_pass(const RingWork& work, std::span<const double> slowness, const TimeMessage& time_message,
                    const PassCosts& costs, std::span<double> clocks);

}  // namespace ringtrain
