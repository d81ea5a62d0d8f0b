// How much memory this process may still take: the machine's, and that of the control groups it runs in.
#pragma once

#include <cstdint>

namespace ringtrain {

/// Returns the bytes that can be allocated without swapping or being killed: the least of MemAvailable and of what
/// every memory control group above this process (versions 1 and 2) and its address-space limit leave; INT64_MAX if the
/// system tells nothing.
std::int64_t available_memory();

/// Returns what a plan of a run's tensors may take of so many bytes: a twentieth stays free for the program itself, and
/// for what other programs take meanwhile.
inline std::int64_t usable_memory(std::int64_t available) {
  return available - available / 20;
}

}  // namespace ringtrain
