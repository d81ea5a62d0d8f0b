// The GPU of the calling thread. CUDA keeps one for each thread and uses GPU 0 if none was chosen; GPU 0 then holds a
// context of half a gigabyte for this process. So every thread chooses its GPU here, and nowhere else. Threads that
// framework/threads.h starts inherit the GPU of the thread that starts them.
#pragma once

#include "framework/cuda/check.h"

namespace ringtrain::cuda {

/// Makes `device` the calling thread's GPU. Returns CUDA's result.
cudaError_t choose_device(int device) noexcept;

/// Makes `device` the calling thread's GPU. Throws Error(device) that names it.
inline void use_device(int device) {
  check(choose_device(device), "choosing the GPU", device);
}

/// Returns the GPU that the calling thread chose, or -1.
int chosen_device() noexcept;

}  // namespace ringtrain::cuda
