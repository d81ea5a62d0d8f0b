// The host API's devices, versions and errors.
#include <algorithm>
#include <cstdio>
#include <cstring>

#include "api/driver.h"
#include "api/runtime.h"
#include "cuda_runtime_api.h"

using cuda_emulator::call;
using cuda_emulator::current_device;
using cuda_emulator::device_chosen;
using cuda_emulator::last_error;
using cuda_emulator::Runtime;
using Lock = cuda_emulator::Streams::Lock;

namespace {

constexpr int version = CUDART_VERSION;
constexpr int max_threads = 1024, registers = 65536, l2_bytes = 50 << 20;
constexpr std::size_t default_shared_bytes = std::size_t{48} << 10, reserved_shared_bytes = 1024;

bool exists(const Runtime& state, int device) {
  return device >= 0 && device < state.devices.count;
}

}  // namespace

cudaError_t cudaGetLastError() {
  return std::exchange(last_error(), cudaSuccess);
}
cudaError_t cudaPeekAtLastError() {
  return last_error();
}

const char* cudaGetErrorName(cudaError_t error) {
#define CUDA_EMULATOR_NAME(name, value, text) \
  if (error == (value)) return #name;
  CUDA_EMULATOR_ERRORS(CUDA_EMULATOR_NAME)
#undef CUDA_EMULATOR_NAME
  return "unrecognized error code";
}

const char* cudaGetErrorString(cudaError_t error) {
#define CUDA_EMULATOR_TEXT(name, value, text) \
  if (error == (value)) return text;
  CUDA_EMULATOR_ERRORS(CUDA_EMULATOR_TEXT)
#undef CUDA_EMULATOR_TEXT
  return "unrecognized error code";
}

cudaError_t cudaGetDeviceCount(int* count) {
  return call(__func__, [&](Runtime& state, Lock&) {
    *count = state.devices.count;
    return *count == 0 ? cudaErrorNoDevice : cudaSuccess;
  });
}

cudaError_t cudaSetDevice(int device) {
  return call(__func__, [&](Runtime& state, Lock&) {
    if (!exists(state, device)) return cudaErrorInvalidDevice;
    current_device() = device;
    device_chosen() = true;
    state.contexts.insert(device);  // since CUDA 12
    state.devices_chosen = state.devices_chosen || device != 0;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  *device = current_device();  // which concerns the thread alone
  return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize() {
  return call(__func__, [&](Runtime& state, Lock& lock) {
    ++state.host_waits["cudaDeviceSynchronize"];
    state.streams.finish_device(current_device(), lock);
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return call(__func__, [&](Runtime& state, Lock&) {
    if (!exists(state, device)) return cudaErrorInvalidDevice;
    *properties = {};
    std::strcpy(properties->name, "Emulated GPU");
    properties->uuid.bytes[15] = static_cast<char>(cuda_emulator::physical_device(device) + 1);
    properties->totalGlobalMem = state.devices.memory_bytes;
    properties->sharedMemPerBlock = default_shared_bytes;
    properties->regsPerBlock = registers;
    properties->warpSize = 32;
    properties->maxThreadsPerBlock = max_threads;
    std::copy_n(std::initializer_list<int>{1024, 1024, 64}.begin(), 3, properties->maxThreadsDim);
    std::copy_n(std::initializer_list<int>{0x7fffffff, 65535, 65535}.begin(), 3, properties->maxGridSize);
    properties->major = state.devices.compute_capability / 10;
    properties->minor = state.devices.compute_capability % 10;
    properties->multiProcessorCount = state.devices.multiprocessors;
    properties->l2CacheSize = l2_bytes;
    properties->maxThreadsPerMultiProcessor = 2048;
    properties->sharedMemPerMultiprocessor = cuda_emulator::largest_shared_bytes() + reserved_shared_bytes;
    properties->sharedMemPerBlockOptin = cuda_emulator::largest_shared_bytes();
    properties->reservedSharedMemPerBlock = reserved_shared_bytes;
    properties->pciBusID = cuda_emulator::physical_device(device) + 1;
    properties->asyncEngineCount = 3;
    properties->unifiedAddressing = 1;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  return call(__func__, [&](Runtime& state, Lock&) {
    if (!exists(state, device)) return cudaErrorInvalidDevice;
    const auto largest_shared = static_cast<int>(cuda_emulator::largest_shared_bytes());
    switch (attribute) {
      case cudaDevAttrMaxThreadsPerBlock:
      case cudaDevAttrMaxBlockDimX:
      case cudaDevAttrMaxBlockDimY:
        *value = max_threads;
        return cudaSuccess;
      case cudaDevAttrMaxBlockDimZ:
        *value = 64;
        return cudaSuccess;
      case cudaDevAttrMaxGridDimX:
        *value = 0x7fffffff;
        return cudaSuccess;
      case cudaDevAttrMaxGridDimY:
      case cudaDevAttrMaxGridDimZ:
        *value = 65535;
        return cudaSuccess;
      case cudaDevAttrMaxSharedMemoryPerBlock:
        *value = default_shared_bytes;
        return cudaSuccess;
      case cudaDevAttrWarpSize:
        *value = 32;
        return cudaSuccess;
      case cudaDevAttrMaxRegistersPerBlock:
        *value = registers;
        return cudaSuccess;
      case cudaDevAttrMultiProcessorCount:
        *value = state.devices.multiprocessors;
        return cudaSuccess;
      case cudaDevAttrConcurrentKernels:
      case cudaDevAttrUnifiedAddressing:
        *value = 1;
        return cudaSuccess;
      case cudaDevAttrL2CacheSize:
        *value = l2_bytes;
        return cudaSuccess;
      case cudaDevAttrAsyncEngineCount:
        *value = 3;
        return cudaSuccess;
      case cudaDevAttrComputeCapabilityMajor:
        *value = state.devices.compute_capability / 10;
        return cudaSuccess;
      case cudaDevAttrComputeCapabilityMinor:
        *value = state.devices.compute_capability % 10;
        return cudaSuccess;
      case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = largest_shared + static_cast<int>(reserved_shared_bytes);
        return cudaSuccess;
      case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        *value = largest_shared;
        return cudaSuccess;
      case cudaDevAttrReservedSharedMemoryPerBlock:
        *value = static_cast<int>(reserved_shared_bytes);
        return cudaSuccess;
    }
    return cudaErrorInvalidValue;
  });
}

cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  return call(__func__, [&](Runtime& state, Lock&) {
    if (!exists(state, device)) return cudaErrorInvalidDevice;
    return std::snprintf(id, static_cast<std::size_t>(length), "0000:%02x:00.0",
                         cuda_emulator::physical_device(device) + 1) < length
               ? cudaSuccess
               : cudaErrorInvalidValue;
  });
}

cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  return call(__func__, [&](Runtime& state, Lock&) {
    if (!exists(state, device) || !exists(state, peer)) return cudaErrorInvalidDevice;
    *can = state.devices.peer_access && device != peer;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  return call(__func__, [&](Runtime& state, Lock&) {
    if (!exists(state, peer) || peer == current_device()) return cudaErrorInvalidDevice;
    if (!state.devices.peer_access) return cudaErrorPeerAccessUnsupported;
    const bool is_new = state.peer_accesses.emplace(current_device(), peer).second;
    return is_new ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled;
  });
}

cudaError_t cudaDriverGetVersion(int* number) {
  return call(__func__, [&](Runtime&, Lock&) {
    *number = version;
    return cudaSuccess;
  });
}

cudaError_t cudaRuntimeGetVersion(int* number) {
  return call(__func__, [&](Runtime&, Lock&) {
    *number = version;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* result) {
  return call(__func__, [&](Runtime&, Lock&) {
    *function = cuda_emulator::driver_function(symbol);
    if (result != nullptr) {
      *result = *function == nullptr ? cudaDriverEntryPointSymbolNotFound : cudaDriverEntryPointSuccess;
    }
    return cudaSuccess;
  });
}
