// Ranks with a GPU each, whose GPU memory NCCL carries. NCCL brings the data alone: host memory, barriers, and the news
// of an error go through the communicator beneath it (threads of one process, or MPI processes), which also hands round
// NCCL's unique id.
//
// Exchanges run on a stream of their own, ordered with the rank's stream by events; the host does not wait for them. A
// watch thread of each communicator looks for NCCL's own errors, and for an exchange that could run but has not ended
// within the timeout; either ends all ranks: NCCL is aborted, so that its kernel leaves the GPU, and so is the
// communicator beneath.
#pragma once

#include <memory>

#include "parallel/communicator.h"

namespace ringtrain {

/// Return whether this build has NCCL.
bool built_with_nccl();

/// Return whether no two ranks of `host` share a GPU. Collective.
bool each_has_a_gpu(Communicator& host, const Stream& stream);

/// Return NCCL among the ranks of `host`, each of which has another GPU. Collective; takes host over. stream must
/// outlive it. Throws Error(usage) if two ranks share a GPU or this build has no NCCL, Error(device) if NCCL does not
/// start.
std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> host, Stream& stream,
                                                     double timeout_seconds);

}  // namespace ringtrain
