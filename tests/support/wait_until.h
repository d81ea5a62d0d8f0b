// Waits for another thread or process, instead of sleeping for as long as it should take.
#pragma once

#include <chrono>
#include <thread>

namespace ringtrain::testing {

/// Returns whether the condition became true before the deadline, which is distant because a busy machine may take
/// long.
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
