// Replaces CUDA's cuda_runtime.h: the host API, the builtins of device code, and kernel launches. Here, a kernel is an
// ordinary function that the CPU runs once for each thread of the grid.
#pragma once

#include <functional>
#include <tuple>
#include <type_traits>
#include <utility>

#include "cuda_emulator_builtins.h"
#include "cuda_emulator_device.h"
#include "cuda_runtime_api.h"

namespace cuda_emulator {
/// Queues a launch; thread: runs the kernel once, as one thread.
cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel, std::function<void()> thread);
}  // namespace cuda_emulator

/// The arguments are converted to the kernel's parameters and copied now.
template <class... Params, class... Args>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Params...), Args&&... args) {
  static_assert((std::is_trivially_copyable_v<std::remove_cvref_t<Params>> && ...), "a kernel's parameters are copied");
  static_assert(!(std::is_reference_v<Params> || ...), "a kernel takes its parameters by value");
  return cuda_emulator::launch(*config, reinterpret_cast<const void*>(kernel),
                               [kernel, parameters = std::tuple<std::remove_cv_t<Params>...>(
                                            std::forward<Args>(args)...)] { std::apply(kernel, parameters); });
}

template <class... Params>
cudaError_t cudaFuncSetAttribute(void (*kernel)(Params...), cudaFuncAttribute attribute, int value) {
  return cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value);
}

template <class... Params>
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, void (*kernel)(Params...)) {
  return cudaFuncGetAttributes(attributes, reinterpret_cast<const void*>(kernel));
}

template <class T>
cudaError_t cudaMalloc(T** pointer, std::size_t bytes) {
  return cudaMalloc(reinterpret_cast<void**>(pointer), bytes);
}
