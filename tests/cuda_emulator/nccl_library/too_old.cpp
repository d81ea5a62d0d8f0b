// A libnccl.so.2 that lacks nearly everything: for tests of what is said then.
#include "nccl.h"

ncclResult_t ncclGetUniqueId(ncclUniqueId*) {
  return ncclInternalError;
}
