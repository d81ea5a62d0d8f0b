#include "parallel/nccl/nccl_library.h"

#include <dlfcn.h>

#include "framework/error.h"
#include "framework/system/host_name.h"

namespace ringtrain {

namespace {

constexpr const char* library_name = "libnccl.so.2";

template <class Function>
void find(void* library, const char* name, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, name));
  if (function == nullptr) {
    fail(ExitCode::device, "host {} has a {} without {}: it is too old; install NCCL {}.{} or newer", host_name(),
         library_name, name, NCCL_MAJOR, NCCL_MINOR);
  }
}

NcclFunctions load_functions() {
  void* const library = dlopen(library_name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    fail(ExitCode::device,
         "NCCL cannot be loaded on host {} ({}); install it, put the folder of {} into LD_LIBRARY_PATH, or set "
         "mesh.backend to threads",
         host_name(), dlerror(), library_name);
  }
  NcclFunctions all;
#define RINGTRAIN_FIND(name) find(library, #name, all.name);
  RINGTRAIN_NCCL_FUNCTIONS(RINGTRAIN_FIND)
#undef RINGTRAIN_FIND
  return all;
}

}  // namespace

const NcclFunctions& nccl() {
  static const NcclFunctions all = load_functions();
  return all;
}

}  // namespace ringtrain
