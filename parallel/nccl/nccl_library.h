// The functions of NCCL that this project calls. They are those of libnccl.so.2, which is loaded, with all of them,
// when they are first needed. So programs start, and run on one GPU or with thread ranks, on machines without NCCL.
// (Compiled if nccl.h is found, see cmake/cuda.cmake.)
#pragma once

#include <nccl.h>

namespace ringtrain {

// FUNCTION(name) for each.
#define RINGTRAIN_NCCL_FUNCTIONS(FUNCTION) \
  FUNCTION(ncclGetUniqueId)                \
  FUNCTION(ncclCommInitRankConfig)         \
  FUNCTION(ncclCommSplit)                  \
  FUNCTION(ncclCommFinalize)               \
  FUNCTION(ncclCommDestroy)                \
  FUNCTION(ncclCommAbort)                  \
  FUNCTION(ncclCommGetAsyncError)          \
  FUNCTION(ncclGetErrorString)             \
  FUNCTION(ncclGetLastError)               \
  FUNCTION(ncclGroupStart)                 \
  FUNCTION(ncclGroupEnd)                   \
  FUNCTION(ncclSend)                       \
  FUNCTION(ncclRecv)                       \
  FUNCTION(ncclReduceScatter)              \
  FUNCTION(ncclReduce)                     \
  FUNCTION(ncclAllGather)                  \
  FUNCTION(ncclBroadcast)                  \
  FUNCTION(ncclGetVersion)

struct NcclFunctions {
#define RINGTRAIN_DECLARE(name) decltype(::name)* name = nullptr;  // NOLINT(bugprone-macro-parentheses): a name
  RINGTRAIN_NCCL_FUNCTIONS(RINGTRAIN_DECLARE)
#undef RINGTRAIN_DECLARE
};

/// Returns NCCL's functions. Throws Error(device), which names the host, if the library cannot be loaded or one is
/// missing.
const NcclFunctions& nccl();

}  // namespace ringtrain
