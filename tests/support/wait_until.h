// Waiting for what another thread or process does, instead of sleeping for as long as that should take.
#pragma once

#include <chrono>
#include <thread>

namespace ringtrain::testing {

/// Returns whether the condition came true before the deadline, which is far off: a busy machine may need long.
template <class Condition>
[[nodiscard]] bool wait_until(const Condition& condition, std::chrono::seconds deadline = std::chrono::seconds(120)) {
  const auto end = std::chrono::steady_clock::now() + deadline;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

}  // namespace ringtrain::testing
