// How long a rank has waited for others: what the timeout of every communicator limits.
#pragma once

#include <algorithm>
#include <chrono>

namespace ringtrain {

/// The time that a rank has waited. Time in which its own process did not run (because it, or its machine, was stopped)
/// does not count as waiting: the others may be as alive as it is. So seconds() must be called at least twice a second.
class Waited {
 public:
  double seconds() {
    const auto now = std::chrono::steady_clock::now();
    seconds_ += std::min(std::chrono::duration<double>(now - last_).count(), 0.5);
    last_ = now;
    return seconds_;
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
  double seconds_ = 0;
};

}  // namespace ringtrain
