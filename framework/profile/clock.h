// Seconds on a clock that nobody sets back.
#pragma once

#include <chrono>

namespace ringtrain {

/// Returns the seconds from `start` until now.
inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace ringtrain
