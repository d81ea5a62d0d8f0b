// Work of rank 0 that may outlast the communicator's timeout (fsync of a large checkpoint, a reference) while all other
// ranks wait for it: they exchange a sign of life meanwhile.
#pragma once

#include <functional>

#include "parallel/communicator.h"

namespace ringtrain {

/// Collective. Runs body on rank 0, on a thread of its own that may not use world; returns on all ranks when it is
/// done. What body throws is thrown on rank 0.
void run_on_rank_zero(Communicator& world, const std::function<void()>& body);

}  // namespace ringtrain
