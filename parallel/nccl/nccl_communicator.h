// Ranks with a GPU each, whose GPU memory NCCL carries. NCCL brings the data alone: host memory, barriers, and
// reports of an error go through the communicator beneath it (threads of one process, or MPI processes), which also
// hands round NCCL's unique ids.
//
// Exchanges run on a stream of their own, ordered with the rank's stream by events; the host does not wait for them,
// only for the other side to come to the first message between two ranks, which connects them. The first error of any
// rank, NCCL's own errors, and an exchange that could run but has not ended within the timeout, each end all ranks (see
// nccl_rank.h). Ranks leave together, by close() of the communicator that was made here, which closes all that were
// split off it. One that is destroyed while something is under way, or is never closed, ends its rank's part in NCCL
// and waits for no other rank.
#pragma once

#include <memory>
#include <string>

#include "parallel/communicator.h"

namespace ringtrain {

/// Returns why NCCL cannot join the ranks of world, with the ranks and the number of GPUs: because two share the GPU
/// that is their device, or this build has no NCCL; "" if it can. With share_gpu (mesh.share_gpu) two must share one
/// instead: processes of one host, or threads where NCCL is 2.30 or newer. The environment of this process then lets
/// NCCL take them, and must not have been read by NCCL before. Collective.
std::string nccl_refusal(Communicator& world, Device device, bool share_gpu);

/// Returns NCCL among the ranks of world, each of which has another GPU, that of its stream, or with share_gpu may
/// share it. Collective. world and stream must outlive it. Throws Error(usage) if there is an nccl_refusal(),
/// Error(device) if NCCL does not start.
std::unique_ptr<Communicator> make_nccl_communicator(Communicator& world, Stream& stream, double timeout_seconds,
                                                     bool share_gpu = false);

}  // namespace ringtrain
