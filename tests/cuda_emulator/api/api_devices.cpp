// The host API's devices, versions and errors.
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

bool exists(const Runtime& state, int device) {
  return device >= 0 && device < state.devices.count;
}

}  // namespace

cudaError_t cudaGetLastError() {
  return std::exchange(last_error(), cudaSuccess);
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
  *device = current_device();  // which affects only the thread
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
    properties->major = state.devices.compute_capability / 10;
    properties->minor = state.devices.compute_capability % 10;
    properties->multiProcessorCount = state.devices.multiprocessors;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr, int device) {
  return call(__func__, [&](Runtime& state, Lock&) {
    if (!exists(state, device)) return cudaErrorInvalidDevice;
    *value = static_cast<int>(cuda_emulator::largest_shared_bytes());
    return cudaSuccess;
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
