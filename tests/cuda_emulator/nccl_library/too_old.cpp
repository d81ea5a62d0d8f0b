// A libnccl.so.2 without nearly all functions, to test the error message.
#include "nccl.h"

ncclResult_t ncclGetUniqueId(ncclUniqueId*) {
  return ncclInternalError;
}
