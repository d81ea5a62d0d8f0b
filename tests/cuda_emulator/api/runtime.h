// The state behind the host API, and the common frame of all API functions: one lock, failures that tests requested,
// and the thread's last error.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "api/settings.h"
#include "cuda_emulator.h"
#include "device/device_memory.h"
#include "device/streams.h"

struct CUevent_st {
  int device = 0;
  bool timing = true;
  std::shared_ptr<cuda_emulator::Record> record{};  // the last one; null: never recorded
};

namespace cuda_emulator {

struct Runtime {
  std::mutex mutex;
  Devices devices;
  Streams streams;
  Memory memory;
  std::map<Stream*, std::shared_ptr<Stream>> handles;
  std::map<CUevent_st*, std::unique_ptr<CUevent_st>> events;
  std::map<const void*, int> shared_bytes;       // cudaFuncAttributeMaxDynamicSharedMemorySize of kernels
  std::set<std::pair<int, std::string>> loaded;  // device, and the code of it that was launched there

  struct Failure {
    int calls;  // until it happens
    cudaError_t error;
  };
  std::multimap<std::string, Failure> failures;
  std::map<int, cudaError_t> failed_devices;
  std::optional<DeviceFault> fault;  // the environment's

  std::set<std::pair<int, int>> peer_accesses;  // device and peer

  std::set<int> contexts;       // devices on which the process has one
  bool devices_chosen = false;  // whether any thread has chosen another device than 0

  std::map<std::string, std::size_t> calls;       // of API functions
  std::map<std::string, std::size_t> host_waits;  // and of those with which the host waits for a device, or may wait

  Runtime();
  void clear();

  /// Returns the stream of a handle, null if there is none. A null handle or 1: the device's default stream.
  std::shared_ptr<Stream> stream(cudaStream_t handle);
  CUevent_st* event(cudaEvent_t handle);
  /// Records the context that a call of this function creates, if there is none. Throws Error if a thread that has
  /// chosen no device would create one on device 0 although others have chosen other devices.
  void make_context(const std::string& function);
  /// Called before the current device runs this code: loads it the first time.
  void load(const std::string& code, Streams::Lock& lock);
  /// Waits for all devices if loading does (set_loading_waits).
  void wait_as_loading_does(Streams::Lock& lock);
  /// Returns the error with which a call of this function on the current device must fail.
  cudaError_t failure(const char* function);
};

Runtime& runtime();
/// The calling thread's device, whether it chose it, and the last error of its calls.
int& current_device();
bool& device_chosen();
cudaError_t& last_error();

/// Returns the machine's device for this device of the process.
int physical_device(int device);

/// The most shared memory that a kernel may request on the devices.
std::size_t largest_shared_bytes();

/// Holds the runtime's lock during a call, in which device memory may be opened.
struct CallGuard {
  explicit CallGuard(Runtime& of) : lock(of.mutex), memory(of.memory) {}
  ~CallGuard() { memory.close(); }
  Streams::Lock lock;
  Memory& memory;
};

/// Calls body(runtime, lock) as the API function with this name.
template <class Body>
cudaError_t call(const char* function, Body body) {
  Runtime& state = runtime();
  CallGuard guard(state);
  ++state.calls[function];
  state.make_context(function);
  cudaError_t error = state.failure(function);
  if (error == cudaSuccess) {
    try {
      error = body(state, guard.lock);
    } catch (const LostDevice& lost) {
      error = state.failed_devices[lost.device] = cudaErrorLaunchFailure;
    }
  }
  if (error != cudaSuccess && error != cudaErrorNotReady) last_error() = error;
  return error;
}

}  // namespace cuda_emulator
