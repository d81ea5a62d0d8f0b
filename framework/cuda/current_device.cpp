#include "framework/cuda/current_device.h"

namespace ringtrain::cuda {

namespace {

thread_local int chosen = -1;

}  // namespace

cudaError_t choose_device(int device) noexcept {
  const cudaError_t status = cudaSetDevice(device);
  if (status == cudaSuccess) chosen = device;
  return status;
}

int chosen_device() noexcept {
  return chosen;
}

}  // namespace ringtrain::cuda
