// NCCL's functions, as far as this project calls them: each passes the call on to libnccl.so.2, which is looked for
// when the first one is called. So programs start, and run on one GPU or with thread ranks, where there is no NCCL.
// (Compiled where nccl.h is found, see cmake/cuda.cmake.)
#include <dlfcn.h>
#include <nccl.h>

#include "framework/error.h"

namespace {

constexpr const char* library_name = "libnccl.so.2";

void* library() {
  static void* const handle = [] {
    void* const opened = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
    if (opened == nullptr) {
      ringtrain::fail(ringtrain::ExitCode::device,
                      "NCCL cannot be loaded ({}); install it, put the folder of {} into LD_LIBRARY_PATH, or set "
                      "mesh.backend to threads",
                      dlerror(), library_name);
    }
    return opened;
  }();
  return handle;
}

template <class Function>
Function* entry(const char* name) {
  void* const found = dlsym(library(), name);
  if (found == nullptr) {
    ringtrain::fail(ringtrain::ExitCode::device,
                    "this machine's {} has no {}: it is too old; install NCCL {}.{} or newer", library_name, name,
                    NCCL_MAJOR, NCCL_MINOR);
  }
  return reinterpret_cast<Function*>(found);
}

}  // namespace

#define RINGTRAIN_NCCL_FUNCTION(result, name, parameters, arguments)      \
  result name parameters {                                                \
    static decltype(name)* const function = entry<decltype(name)>(#name); \
    return function arguments;                                            \
  }

RINGTRAIN_NCCL_FUNCTION(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * id), (id))
RINGTRAIN_NCCL_FUNCTION(ncclResult_t, ncclCommInitRankConfig,
                        (ncclComm_t * communicator, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config),
                        (communicator, ranks, id, rank, config))
RINGTRAIN_NCCL_FUNCTION(ncclResult_t, ncclCommSplit,
                        (ncclComm_t from, int colour, int key, ncclComm_t* part, ncclConfig_t* config),
                        (from, colour, key, part, config))
RINGTRAIN_NCCL_FUNCTION(ncclResult_t, ncclCommFinalize, (ncclComm_t communicator), (communicator))
RINGTRAIN_NCCL_FUNCTION(ncclResult_t, ncclCommDestroy, (ncclComm_t communicator), (communicator))
RINGTRAIN_NCCL_FUNCTION(ncclResult_t, ncclCommAbort, (ncclComm_t communicator), (communicator))
RINGTRAIN_NCCL_FUNCTION(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t communicator, ncclResult_t* error),
                        (communicator, error))
RINGTRAIN_NCCL_FUNCTION(const char*, ncclGetErrorString, (ncclResult_t result), (result))
RINGTRAIN_NCCL_FUNCTION(const char*, ncclGetLastError, (ncclComm_t communicator), (communicator))
RINGTRAIN_NCCL_FUNCTION(ncclResult_t, ncclGroupStart, (), ())
RINGTRAIN_NCCL_FUNCTION(ncclResult_t, ncclGroupEnd, (), ())
RINGTRAIN_NCCL_FUNCTION(ncclResult_t, ncclSend,
                        (const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                         cudaStream_t stream),
                        (data, count, type, peer, communicator, stream))
RINGTRAIN_NCCL_FUNCTION(ncclResult_t, ncclRecv,
                        (void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                         cudaStream_t stream),
                        (data, count, type, peer, communicator, stream))
