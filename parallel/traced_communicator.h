// A communicator that records what passes through it on a timeline. An exchange of host memory stands on the
// communication row, from its post until the rank has seen its end. A wait stands on the rank's own row. Copies of GPU
// memory between thread ranks record themselves (framework/copy_stream.h). It exists only where something is traced.
// Bits, order and errors are those of the communicator within.
#pragma once

#include <memory>

#include "framework/profile/trace.h"
#include "parallel/communicator.h"

namespace ringtrain {

/// Returns inner's calls, recorded. What is split off it is recorded, too. inner and trace must outlive it.
std::unique_ptr<Communicator> traced(Communicator& inner, RankTrace& trace);

/// Returns inner, a communicator of GPU memory above one of host memory that is recorded already. Its exchanges of GPU
/// memory stand on the row of the GPU's communication, from where the rank's GPU was when they were posted until they
/// had been waited for there; its waits as above. trace must outlive it.
std::unique_ptr<Communicator> traced_on_device(std::shared_ptr<Communicator> inner, RankTrace& trace);

}  // namespace ringtrain
