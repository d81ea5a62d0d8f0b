// Compares a rank's clock with that of rank 0, using round trips of a message. A message cannot arrive before it was
// sent, so the fastest round trip limits the error, whatever the network does.
#pragma once

#include <cstdint>
#include <functional>

#include "framework/profile/clock_mapping.h"
#include "parallel/communicator.h"

namespace ringtrain {

/// Collective. Returns one moment by this rank's clock and by that of rank 0, from round trips between the two: 32, and
/// more on a busy machine, for at most half a second. Its error is half of the fastest one. now: the rank's clock, in
/// nanoseconds from any origin; it must not go backwards.
ClockPair read_clocks(Communicator& world, const std::function<std::int64_t()>& now);

}  // namespace ringtrain
