#include "framework/threads.h"

#if RINGTRAIN_CUDA
#include "framework/cuda/current_device.h"
#endif

namespace ringtrain {

int gpu_of_thread() noexcept {
#if RINGTRAIN_CUDA
  return cuda::chosen_device();
#else
  return -1;
#endif
}

void take_gpu([[maybe_unused]] int gpu) noexcept {
#if RINGTRAIN_CUDA
  if (gpu >= 0) cuda::ignore(cuda::choose_device(gpu));  // a GPU that has failed: the thread's next call tells
#endif
}

}  // namespace ringtrain
