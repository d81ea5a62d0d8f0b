// A communicator that records its calls on a timeline. An exchange of host memory is shown on the communication row,
// from its post until the rank has seen its end. A wait is shown on the rank's own row. Copies of GPU memory between
// thread ranks record themselves (framework/copy_stream.h). It exists only if the run is traced. Bits, order, and
// errors are those of the inner communicator.
#pragma once

#include <memory>

#include "framework/profile/trace.h"
#include "parallel/communicator.h"

namespace ringtrain {

/// Returns inner, with its calls recorded. Communicators that are split off it are also recorded. inner and trace must
/// outlive it.
std::unique_ptr<Communicator> traced(Communicator& inner, RankTrace& trace);

/// Returns inner, a communicator of GPU memory above one of host memory that is already recorded. Its exchanges of GPU
/// memory are shown on the row of the GPU's communication, from the GPU's point when they were posted until they had
/// been waited for there; its waits as above. trace must outlive it.
std::unique_ptr<Communicator> traced_on_device(std::shared_ptr<Communicator> inner, RankTrace& trace);

}  // namespace ringtrain
