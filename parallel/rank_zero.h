// Work of rank 0 that may take longer than the communicator's timeout (fsync of a large checkpoint, a reference) while
// all other ranks wait for it: they exchange signs of life meanwhile.
#pragma once

#include <functional>

#include "parallel/communicator.h"

namespace ringtrain {

/// Collective. Runs body on rank 0, on a separate thread that must not use world; returns on all ranks when it is done.
/// An exception of body is rethrown on rank 0.
void run_on_rank_zero(Communicator& world, const std::function<void()>& body);

}  // namespace ringtrain
