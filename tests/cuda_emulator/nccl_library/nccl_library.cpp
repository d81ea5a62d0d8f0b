// libnccl.so.2 of the emulator: forwards NCCL's functions to the emulator in the program that loads it. So programs
// search for NCCL, and find it, as on a machine that has it.
#include "nccl.h"

#include <map>

#include "nccl/nccl_communicators.h"
#include "nccl/nccl_groups.h"
#include "nccl_collectives.h"

using namespace cuda_emulator;  // NOLINT: a file of one-line functions

ncclResult_t ncclGetVersion(int* version) {
  return nccl::get_version(version);
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  return nccl::get_unique_id(id);
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  return nccl::join(communicator, ranks, id, rank, config);
}
ncclResult_t ncclCommSplit(ncclComm_t communicator, int color, int key, ncclComm_t* part, ncclConfig_t* config) {
  return nccl::split(communicator, color, key, part, config);
}
ncclResult_t ncclCommFinalize(ncclComm_t communicator) {
  return nccl::finalize(communicator);
}
ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  return nccl::destroy(communicator);
}
ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  return nccl::abort(communicator);
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t* error) {
  return nccl::get_state(communicator, error);
}
const char* ncclGetLastError(ncclComm_t) {
  return nccl::last_error();
}
ncclResult_t ncclGroupStart() {
  return nccl::group_start();
}
ncclResult_t ncclGroupEnd() {
  return nccl::bucket_end();
}
ncclResult_t ncclSend(const void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  return nccl::post("ncclSend", true, const_cast<void*>(data), count, type, peer, communicator, stream);
}
ncclResult_t ncclRecv(void* data, std::size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      cudaStream_t stream) {
  return nccl::post("ncclRecv", false, data, count, type, peer, communicator, stream);
}
ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t communicator, cudaStream_t stream) {
  return nccl::reduce_scatter(from, to, count, type, operation, communicator, stream);
}
ncclResult_t ncclReduce(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclRedOp_t operation,
                        int root, ncclComm_t communicator, cudaStream_t stream) {
  return nccl::reduce(from, to, count, type, operation, root, communicator, stream);
}
ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type, ncclComm_t communicator,
                           cudaStream_t stream) {
  return nccl::all_gather(from, to, count, type, communicator, stream);
}
ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type, int root,
                           ncclComm_t communicator, cudaStream_t stream) {
  return nccl::broadcast(from, to, count, type, root, communicator, stream);
}

const char* ncclGetErrorString(ncclResult_t result) {
  static const std::map<ncclResult_t, const char*> texts{
      {ncclSuccess, "no error"},
      {ncclUnhandledCudaError, "unhandled cuda error"},
      {ncclSystemError, "unhandled system error"},
      {ncclInternalError, "internal error"},
      {ncclInvalidArgument, "invalid argument"},
      {ncclInvalidUsage, "invalid usage"},
      {ncclRemoteError, "remote process exited or there was a network error"},
      {ncclInProgress, "NCCL operation in progress"}};
  return texts.at(result);
}
