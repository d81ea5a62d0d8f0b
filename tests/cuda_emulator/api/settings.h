// The settings of tests (cuda_emulator.h), initially from the environment. Guarded by the runtime's lock.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "cuda_emulator.h"

namespace cuda_emulator {

struct Settings {
  ThreadOrder threads = ThreadOrder::forward;
  std::uint64_t threads_seed = 0;
  StreamOrder streams = StreamOrder::lazy;
  std::uint64_t streams_seed = 0;
  CopyLanding copies = CopyLanding::late;
  BlasRefusal blas_refusal = BlasRefusal::nothing;
  bool proxies = false;  // whether every write that TMA or wgmma reads is checked for its thread's fence
  bool loading_waits = false;
  std::chrono::milliseconds late_event_waits{0};
  Durations durations{};
};

Settings& settings();
/// Returns whether a signal that a thread is about to send must be lost.
bool lost(Signal signal);
/// Returns the settings that the environment requests. Throws Error if they cannot be parsed.
Settings settings_of_environment();
Devices devices_of_environment();

/// A device that fails at the n-th call of a function there.
struct DeviceFault {
  int device = 0;
  std::string function;
  int calls = 1;
};
std::optional<DeviceFault> fault_of_environment();

}  // namespace cuda_emulator
