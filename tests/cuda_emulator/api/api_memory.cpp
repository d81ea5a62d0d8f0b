// The host API's memory: allocation and copies.
#include <cstring>
#include <memory>

#include "api/runtime.h"
#include "cuda_runtime_api.h"

namespace cuda_emulator {
namespace {

cudaError_t allocate(const char* function, void** pointer, std::size_t bytes, bool pinned) {
  return call(function, [&](Runtime& state, Streams::Lock& lock) {
    if (pointer == nullptr) return cudaErrorInvalidValue;
    *pointer = nullptr;
    if (bytes == 0) return cudaSuccess;
    ++state.host_waits[function];
    state.wait_as_loading_does(lock);
    *pointer = state.memory.allocate(current_device(), bytes, pinned);
    return *pointer == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
  });
}

// Freeing waits for all work of the device, as in CUDA.
cudaError_t release(const char* function, void* pointer, bool pinned) {
  return call(function, [&](Runtime& state, Streams::Lock& lock) {
    if (pointer == nullptr) return cudaSuccess;
    const Allocation* allocation = state.memory.find(pointer);
    if (allocation == nullptr || allocation->base != pointer || allocation->pinned != pinned)
      return cudaErrorInvalidValue;
    ++state.host_waits[function];
    const int device = allocation->device;
    state.wait_as_loading_does(lock);
    state.streams.finish_device(device, lock);
    state.memory.release(pointer, pinned);
    return cudaSuccess;
  });
}

enum class MemoryKind { pageable, pinned, device };

MemoryKind kind_of(const Runtime& state, const void* pointer) {
  const Allocation* allocation = state.memory.find(pointer);
  return allocation == nullptr ? MemoryKind::pageable : allocation->pinned ? MemoryKind::pinned : MemoryKind::device;
}

const char* name_of(bool from_device, bool to_device) {
  if (from_device) return to_device ? "device to device" : "device to host";
  return to_device ? "host to device" : "host to host";
}

bool matches(cudaMemcpyKind kind, bool from_device, bool to_device) {
  switch (kind) {
    case cudaMemcpyHostToHost:
      return !from_device && !to_device;
    case cudaMemcpyHostToDevice:
      return !from_device && to_device;
    case cudaMemcpyDeviceToHost:
      return from_device && !to_device;
    case cudaMemcpyDeviceToDevice:
      return from_device && to_device;
    case cudaMemcpyDefault:
      return true;
  }
  return false;
}

// synchronous: the host waits for it, unless both sides are on devices. Other copies may also make it wait.
cudaError_t copy(const char* function, void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                 cudaStream_t handle, bool synchronous) {
  return call(function, [&](Runtime& state, Streams::Lock& lock) {
    const auto stream = state.stream(handle);
    if (!stream) return cudaErrorInvalidResourceHandle;
    if (bytes == 0) return cudaSuccess;
    const MemoryKind source = kind_of(state, from), target = kind_of(state, to);
    const bool from_device = source == MemoryKind::device, to_device = target == MemoryKind::device;
    if (to == nullptr || from == nullptr || !matches(kind, from_device, to_device) || !state.memory.whole(to, bytes) ||
        !state.memory.whole(from, bytes)) {
      return cudaErrorInvalidValue;
    }
    // The source of a copy from pageable memory may be reused when the call returns, so it is read now.
    std::shared_ptr<char[]> staged;
    if (source == MemoryKind::pageable) {
      staged = std::make_unique<char[]>(bytes);
      std::memcpy(staged.get(), from, bytes);
      from = staged.get();
    }
    state.streams.add(stream,
                      {Trace::Kind::copy, name_of(from_device, to_device), bytes,
                       [to, from, bytes, staged] { std::memmove(to, from, bytes); }},
                      lock);
    if (synchronous) {
      ++state.host_waits["cudaMemcpy"];
    } else if (source == MemoryKind::pageable || target == MemoryKind::pageable) {
      ++state.host_waits["cudaMemcpyAsync: memory that is not pinned"];
    } else if (!from_device && !to_device) {
      ++state.host_waits["cudaMemcpyAsync: host to host"];
    }
    const bool waits =
        target == MemoryKind::pageable || (!from_device && !to_device) || (synchronous && !(from_device && to_device));
    if (waits) state.streams.finish(stream, lock);
    return cudaSuccess;
  });
}

cudaError_t set(Runtime& state, Streams::Lock& lock, void* to, int value, std::size_t bytes, cudaStream_t handle) {
  const auto stream = state.stream(handle);
  if (!stream) return cudaErrorInvalidResourceHandle;
  if (bytes == 0) return cudaSuccess;
  if (kind_of(state, to) == MemoryKind::pageable || !state.memory.whole(to, bytes)) return cudaErrorInvalidValue;
  state.streams.add(stream, {Trace::Kind::set, "set", bytes, [=] { std::memset(to, value, bytes); }}, lock);
  return cudaSuccess;
}

}  // namespace
}  // namespace cuda_emulator

using cuda_emulator::call;
using cuda_emulator::current_device;
using cuda_emulator::Runtime;
using Lock = cuda_emulator::Streams::Lock;

cudaError_t cudaMalloc(void** pointer, std::size_t bytes) {
  return cuda_emulator::allocate(__func__, pointer, bytes, false);
}
cudaError_t cudaFree(void* pointer) {
  return cuda_emulator::release(__func__, pointer, false);
}
cudaError_t cudaHostAlloc(void** pointer, std::size_t bytes, unsigned) {
  return cuda_emulator::allocate(__func__, pointer, bytes, true);
}
cudaError_t cudaFreeHost(void* pointer) {
  return cuda_emulator::release(__func__, pointer, true);
}

cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  return call(__func__, [&](Runtime& state, Lock&) {
    *total_bytes = state.devices.memory_bytes;
    *free_bytes = *total_bytes - state.memory.used(current_device());
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  return cuda_emulator::copy(__func__, to, from, bytes, kind, nullptr, true);
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return cuda_emulator::copy(__func__, to, from, bytes, kind, stream, false);
}
cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  return call(__func__, [&](Runtime& state, Lock& lock) {
    ++state.host_waits["cudaMemset"];
    return cuda_emulator::set(state, lock, to, value, bytes, nullptr);
  });
}
cudaError_t cudaMemsetAsync(void* to, int value, std::size_t bytes, cudaStream_t stream) {
  return call(__func__,
              [&](Runtime& state, Lock& lock) { return cuda_emulator::set(state, lock, to, value, bytes, stream); });
}
