// Collectives of the emulated NCCL: reduce-scatter, reduce, all-gather, and broadcast, composed of a group's messages.
// Their rules are those of messages: a group blocks until those of all ranks run, and the ranks' calls must agree. Sums
// begin with the rank after the one that gets them and go around to itself, rounded each time, as in NCCL's ring, so
// with more than two ranks they seldom have the bits of rank order. If a rank's part is summed in place in a buffer,
// the buffer's other parts are lost.
#pragma once

#include "nccl/nccl_groups.h"

namespace cuda_emulator::nccl {

ncclResult_t reduce_scatter(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t operation,
                            ncclComm_t communicator, cudaStream_t stream);
ncclResult_t reduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t operation, int root,
                    ncclComm_t communicator, cudaStream_t stream);
ncclResult_t all_gather(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclComm_t communicator,
                        cudaStream_t stream);
ncclResult_t broadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                       ncclComm_t communicator, cudaStream_t stream);

}  // namespace cuda_emulator::nccl
