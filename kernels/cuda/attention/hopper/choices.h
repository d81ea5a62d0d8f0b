// Choices of Hopper's kernels that measurements on a card decide. Both alternatives are correct, and give the same bits
// if a call is deterministic. The defaults here are those of the build; gpu_bench compares them with the alternatives
// in one run, and the tests run both.
#pragma once

#include <cstdlib>
#include <string_view>

namespace ringtrain::cuda::hopper {

struct Choices {
  bool rotated_tiles = true;  // with few tiles per multiprocessor, those of middle length come first (tile_schedule.h)
  bool cache_hints = true;    // the L2 cache keeps data that other blocks will read again longer than other data
};

/// The process's choices. They must not change while another thread calls attention.
inline Choices& choices() {
  static Choices made;
  return made;
}

/// Returns whether RINGTRAIN_PORTABLE_ATTENTION=1 is in the environment: then Hopper runs the portable kernels, to test
/// and time them there.
inline bool portable_is_forced() {
  static const char* const value = std::getenv("RINGTRAIN_PORTABLE_ATTENTION");
  static const bool forced = value != nullptr && std::string_view(value) == "1";
  return forced;
}

}  // namespace ringtrain::cuda::hopper
