// The host API's launch of kernels, with the limits that CUDA checks at the call.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

#include "api/runtime.h"
#include "api/symbols.h"
#include "cuda_runtime.h"
#include "device/block.h"

using cuda_emulator::call;
using cuda_emulator::Runtime;
using Lock = cuda_emulator::Streams::Lock;

namespace {

constexpr std::size_t default_shared_bytes = std::size_t{48} << 10;

bool fits(const dim3& grid, const dim3& block) {
  const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
  return grid.x >= 1 && grid.x <= 0x7fffffffu && grid.y >= 1 && grid.y <= 65535 && grid.z >= 1 && grid.z <= 65535 &&
         threads >= 1 && block.x <= 1024 && block.y <= 1024 && block.z <= 64 && threads <= 1024;
}

void load_kernel(Runtime& state, const void* kernel, Lock& lock) {
  state.load(fmt::format("kernel {}", kernel), lock);
}

}  // namespace

cudaError_t cuda_emulator::launch(const cudaLaunchConfig_t& config, const void* kernel, std::function<void()> thread) {
  return call("cudaLaunchKernelExC", [&](Runtime& state, Lock& lock) {
    const auto stream = state.stream(config.stream);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (!fits(config.gridDim, config.blockDim)) return cudaErrorInvalidConfiguration;
    const auto allowed = state.shared_bytes.find(kernel);
    const std::size_t most = allowed == state.shared_bytes.end()
                                 ? default_shared_bytes
                                 : std::max(default_shared_bytes, static_cast<std::size_t>(allowed->second));
    if (config.dynamicSmemBytes > most) return cudaErrorInvalidValue;
    load_kernel(state, kernel, lock);
    auto launched = std::make_shared<Launch>(Launch{config.gridDim, config.blockDim, config.dynamicSmemBytes, kernel,
                                                    std::move(thread), state.devices.compute_capability});
    cuda_emulator::Work work{Trace::Kind::kernel, state.streams.tracing ? function_name(kernel) : std::string(), 0,
                             [launched] { run_kernel(*launched); }};
    work.blocks = std::size_t{config.gridDim.x} * config.gridDim.y * config.gridDim.z;
    state.streams.add(stream, std::move(work), lock);
    return cudaSuccess;
  });
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int value) {
  return call(__func__, [&](Runtime& state, Lock&) {
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    if (value < 0 || static_cast<std::size_t>(value) > cuda_emulator::largest_shared_bytes())
      return cudaErrorInvalidValue;
    state.shared_bytes[kernel] = value;
    return cudaSuccess;
  });
}

cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  return call(__func__, [&](Runtime& state, Lock& lock) {
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    load_kernel(state, kernel, lock);
    attributes->numRegs = 32;
    return cudaSuccess;
  });
}
