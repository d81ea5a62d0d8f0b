#include "framework/cuda/kernel_loading.h"

#include <cuda_runtime.h>

#include <vector>

#include "framework/cuda/check.h"

namespace ringtrain::cuda {
namespace {

std::vector<const void*>& noted_kernels() {
  static std::vector<const void*> kernels;  // created by the first registration, before main
  return kernels;
}

}  // namespace

bool note_kernel(const void* kernel) {
  noted_kernels().push_back(kernel);
  return true;
}

void load_kernels() {
  for (const void* kernel : noted_kernels()) {
    cudaFuncAttributes attributes;
    const cudaError_t status = cudaFuncGetAttributes(&attributes, kernel);
    if (status == cudaErrorNoKernelImageForDevice || status == cudaErrorInvalidDeviceFunction) {
      ignore(cudaGetLastError());  // otherwise the next launch would report it
      continue;
    }
    check(status, "loading a kernel");
  }
}

}  // namespace ringtrain::cuda
