// Choices of Hopper's kernels that a card judges: of two ways both are right, and give the same bits where a call is
// deterministic. The build's are the defaults here; gpu_bench measures the others beside them in one run, and the tests
// run both.
#pragma once

namespace ringtrain::cuda::hopper {

struct Choices {
  bool rotated_tiles = true;  // with few tiles a multiprocessor those of middle length come first (tile_schedule.h)
  bool cache_hints = true;    // what other blocks will read again stays in the L2 cache before what they won't
};

/// The process's choices. Not to be changed while another thread calls attention.
inline Choices& choices() {
  static Choices made;
  return made;
}

}  // namespace ringtrain::cuda::hopper
