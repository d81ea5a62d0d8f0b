#include "framework/cuda/memory.h"

#include "framework/cuda/current_device.h"

namespace ringtrain::cuda {

void* allocate(int device, std::size_t bytes) {
  void* data = nullptr;
  use_device(device);
  const cudaError_t status = cudaMalloc(&data, bytes);
  if (status == cudaErrorMemoryAllocation) {
    ignore(cudaGetLastError());  // otherwise the next launch would report it again
    return nullptr;
  }
  check(status, "asking for GPU memory");
  return data;
}

void release(int device, void* data) {
  ignore(choose_device(device));
  ignore(cudaFree(data));
}

void* allocate_pinned(std::size_t bytes) {
  void* data = nullptr;
  const cudaError_t status = cudaHostAlloc(&data, bytes, cudaHostAllocPortable);
  if (status == cudaErrorMemoryAllocation ||
      status == cudaErrorOperatingSystem) {  // the latter: it cannot lock more pages
    ignore(cudaGetLastError());
    return nullptr;
  }
  check(status, "asking for pinned host memory");
  return data;
}

void release_pinned(void* data) {
  ignore(cudaFreeHost(data));
}

std::size_t free_bytes(int device) {
  std::size_t free = 0, total = 0;
  use_device(device);
  check(cudaMemGetInfo(&free, &total), "asking how much memory of the GPU is free");
  return free;
}

}  // namespace ringtrain::cuda
