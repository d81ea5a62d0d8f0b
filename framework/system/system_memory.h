// How much more memory this process may allocate: limits of the machine and of its control groups.
#pragma once

#include <cstdint>
#include <string>

namespace ringtrain {

/// Returns the bytes that can be allocated without swapping or being killed: the minimum of MemAvailable and of what
/// every memory control group above this process (versions 1 and 2) and its address-space limit leave; INT64_MAX if the
/// system reports nothing. root: the folder of /proc and /sys, unless a test has others.
std::int64_t available_memory(const std::string& root = "");

/// Returns how many of so many bytes a plan of a run's tensors may use: a twentieth remains free for the program itself
/// and for memory that other programs allocate meanwhile.
inline std::int64_t usable_memory(std::int64_t available) {
  return available - available / 20;
}

}  // namespace ringtrain
