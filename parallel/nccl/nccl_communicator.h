// Ranks with a GPU each, whose GPU memory NCCL transfers. NCCL moves only this data: host memory, barriers, and error
// reports go through the communicator below it (threads of one process, or MPI processes), which also distributes
// NCCL's unique ids.
//
// Exchanges run on a separate stream, ordered with the rank's stream by events. The host does not wait for them, except
// for the other side to arrive at the first message between two ranks, which connects them. The first error of any
// rank, NCCL's own errors, and an exchange that could run but has not ended within the timeout each end all ranks (see
// nccl_rank.h). Ranks leave together, by close() of the communicator that was made here, which closes all that were
// split off it. If one is destroyed with pending exchanges, or is never closed, its rank aborts NCCL without waiting
// for any other rank.
#pragma once

#include <memory>
#include <string>

#include "parallel/communicator.h"

namespace ringtrain {

/// Returns why NCCL cannot connect the ranks of world, with the ranks and the number of GPUs: because two ranks have
/// the same GPU as their device, or this build has no NCCL; "" if it can. With share_gpu (mesh.share_gpu), two must
/// share one instead: processes of one host, or threads if NCCL is 2.30 or newer. This function then sets this
/// process's environment so that NCCL accepts them; NCCL must not have read it before. Collective.
std::string nccl_refusal(Communicator& world, Device device, bool share_gpu);

/// Returns NCCL among the ranks of world. Each has a different GPU, that of its stream, or may share it with share_gpu.
/// Collective. world and stream must outlive it. Throws Error(usage) if there is an nccl_refusal(), and Error(device)
/// if NCCL does not start.
std::unique_ptr<Communicator> make_nccl_communicator(Communicator& world, Stream& stream, double timeout_seconds,
                                                     bool share_gpu = false);

}  // namespace ringtrain
