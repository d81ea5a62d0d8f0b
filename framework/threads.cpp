#include "framework/threads.h"

#if RINGTRAIN_CUDA
#include "framework/cuda/current_device.h"
#endif

namespace ringtrain {

void fail_start(ExitCode code, const std::string& what, const std::system_error& error) {
  fail(code,
       "cannot start {}: {}; use fewer ranks or threads, or raise the limit on processes and threads (ulimit -u, a "
       "container's limit) or on memory (ulimit -v)",
       what, error.code().message());
}

int gpu_of_thread() noexcept {
#if RINGTRAIN_CUDA
  return cuda::chosen_device();
#else
  return -1;
#endif
}

void take_gpu([[maybe_unused]] int gpu) noexcept {
#if RINGTRAIN_CUDA
  if (gpu >= 0) cuda::ignore(cuda::choose_device(gpu));  // if the GPU has failed, the thread's next call reports it
#endif
}

}  // namespace ringtrain
