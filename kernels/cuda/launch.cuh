// Launches kernels, and gives device code access to its dynamic shared memory.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "framework/cuda/check.h"
#include "framework/cuda/context.h"
#include "framework/cuda/kernel_loading.h"
#include "framework/stream.h"

namespace ringtrain::cuda {

/// Registers a kernel before main, if any code of the program launches it.
template <auto kernel>
inline const bool noted = note_kernel(reinterpret_cast<const void*>(kernel));

/// Runs kernel on the context's stream with grid x block threads and shared_bytes of dynamic shared memory per block.
/// An empty grid is not launched. The kernel is a template argument, so that every launched kernel is known to
/// load_kernels. Throws Error(device) if the launch is refused.
template <auto kernel, class... Args>
void launch(Context& context, dim3 grid, dim3 block, std::size_t shared_bytes, Args&&... args) {
  static_cast<void>(noted<kernel>);
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  if (shared_bytes > 48 * 1024) context.allow_shared_bytes(reinterpret_cast<const void*>(kernel), shared_bytes);
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = context.stream();
  check(cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...), "launching a kernel");
}

/// Returns how many blocks of `block` cover n.
constexpr unsigned blocks_for(std::int64_t n, std::int64_t block) {
  return static_cast<unsigned>((n + block - 1) / block);
}

#if defined(RINGTRAIN_CUDA_EMULATED)
template <class T>
T* dynamic_shared() {
  return static_cast<T*>(cuda_emulator::dynamic_shared_memory());
}
#else
/// Returns the block's dynamic shared memory, aligned to 1024 bytes.
template <class T>
__device__ __forceinline__ T* dynamic_shared() {
  extern __shared__ __align__(1024) unsigned char shared_memory[];
  return reinterpret_cast<T*>(shared_memory);
}
#endif

}  // namespace ringtrain::cuda
