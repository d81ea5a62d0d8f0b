// NCCL's functions, as far as this project calls them: each passes the call on to libnccl.so.2, which is loaded, with
// all of them, when the first one is called. So programs start, and run on one GPU or with thread ranks, where there is
// no NCCL. (Compiled where nccl.h is found, see cmake/cuda.cmake.)
#include <dlfcn.h>
#include <nccl.h>

#include "framework/error.h"
#include "framework/system/host_name.h"

namespace {

constexpr const char* library_name = "libnccl.so.2";

void* open_library() {
  void* const opened = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) {
    ringtrain::fail(
        ringtrain::ExitCode::device,
        "NCCL cannot be loaded on host {} ({}); install it, put the folder of {} into LD_LIBRARY_PATH, or set "
        "mesh.backend to threads",
        ringtrain::host_name(), dlerror(), library_name);
  }
  return opened;
}

template <class Function>
void find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  if (function == nullptr) {
    ringtrain::fail(ringtrain::ExitCode::device,
                    "host {} has a {} without {}: it is too old; install NCCL {}.{} or newer", ringtrain::host_name(),
                    library_name, name, NCCL_MAJOR, NCCL_MINOR);
  }
}

// FUNCTION(result, name, parameters, arguments) of each.
#define RINGTRAIN_NCCL_FUNCTIONS(FUNCTION)                                                                           \
  FUNCTION(ncclResult_t, ncclGetUniqueId, (ncclUniqueId * id), (id))                                                 \
  FUNCTION(ncclResult_t, ncclCommInitRankConfig,                                                                     \
           (ncclComm_t * communicator, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config),                  \
           (communicator, ranks, id, rank, config))                                                                  \
  FUNCTION(ncclResult_t, ncclCommSplit,                                                                              \
           (ncclComm_t communicator, int colour, int key, ncclComm_t* part, ncclConfig_t* config),                   \
           (communicator, colour, key, part, config))                                                                \
  FUNCTION(ncclResult_t, ncclCommFinalize, (ncclComm_t communicator), (communicator))                                \
  FUNCTION(ncclResult_t, ncclCommDestroy, (ncclComm_t communicator), (communicator))                                 \
  FUNCTION(ncclResult_t, ncclCommAbort, (ncclComm_t communicator), (communicator))                                   \
  FUNCTION(ncclResult_t, ncclCommGetAsyncError, (ncclComm_t communicator, ncclResult_t * error),                     \
           (communicator, error))                                                                                    \
  FUNCTION(const char*, ncclGetErrorString, (ncclResult_t result), (result))                                         \
  FUNCTION(const char*, ncclGetLastError, (ncclComm_t communicator), (communicator))                                 \
  FUNCTION(ncclResult_t, ncclGroupStart, (), ())                                                                     \
  FUNCTION(ncclResult_t, ncclGroupEnd, (), ())                                                                       \
  FUNCTION(                                                                                                          \
      ncclResult_t, ncclSend,                                                                                        \
      (const void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator, cudaStream_t stream), \
      (data, count, type, peer, communicator, stream))                                                               \
  FUNCTION(ncclResult_t, ncclRecv,                                                                                   \
           (void* data, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator, cudaStream_t stream),  \
           (data, count, type, peer, communicator, stream))                                                          \
  FUNCTION(ncclResult_t, ncclReduceScatter,                                                                          \
           (const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t operation,                    \
            ncclComm_t communicator, cudaStream_t stream),                                                           \
           (from, to, count, type, operation, communicator, stream))                                                 \
  FUNCTION(ncclResult_t, ncclReduce,                                                                                 \
           (const void* from, void* to, size_t count, ncclDataType_t type, ncclRedOp_t operation, int root,          \
            ncclComm_t communicator, cudaStream_t stream),                                                           \
           (from, to, count, type, operation, root, communicator, stream))                                           \
  FUNCTION(                                                                                                          \
      ncclResult_t, ncclAllGather,                                                                                   \
      (const void* from, void* to, size_t count, ncclDataType_t type, ncclComm_t communicator, cudaStream_t stream), \
      (from, to, count, type, communicator, stream))                                                                 \
  FUNCTION(ncclResult_t, ncclBroadcast,                                                                              \
           (const void* from, void* to, size_t count, ncclDataType_t type, int root, ncclComm_t communicator,        \
            cudaStream_t stream),                                                                                    \
           (from, to, count, type, root, communicator, stream))

struct Functions {
#define RINGTRAIN_DECLARE(result, name, parameters, arguments) \
  decltype(::name)* name = nullptr;  // NOLINT(bugprone-macro-parentheses): a name
  RINGTRAIN_NCCL_FUNCTIONS(RINGTRAIN_DECLARE)
#undef RINGTRAIN_DECLARE

  Functions() {
    void* const library = open_library();
#define RINGTRAIN_FIND(result, name, parameters, arguments) find(library, #name, this->name);
    RINGTRAIN_NCCL_FUNCTIONS(RINGTRAIN_FIND)
#undef RINGTRAIN_FIND
  }
};

const Functions& functions() {
  static const Functions all;
  return all;
}

}  // namespace

#define RINGTRAIN_DEFINE(result, name, parameters, arguments) \
  result name parameters {                                    \
    return functions().name arguments;                        \
  }
RINGTRAIN_NCCL_FUNCTIONS(RINGTRAIN_DEFINE)
