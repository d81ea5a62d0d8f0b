// Choices of Hopper's kernels that only a card can judge: what is the faster of two ways of which both are right, and
// give the same bits where a call is deterministic. The build's are the defaults here; gpu_bench measures the others
// beside them in one run, and the tests run both.
#pragma once

namespace ringtrain::cuda::hopper {

struct Choices {
  bool hold_turn = true;      // deterministic dq: the turn is passed a step later, when its sums have long arrived
  bool early_scores = true;   // D = 128: the next step's scores are started before this step's dq is on its way out
  bool unread_sums = true;    // dk and dv are added by reductions, without reading what is there
  bool stored_sums = true;    // dk and dv that begin with the call are stored, not set to zero first and added to
  bool rotated_tiles = true;  // with few tiles a multiprocessor those of middle length come first (tile_schedule.h)
  bool cache_hints = true;    // what other blocks will read again stays in the L2 cache before what they won't
};

/// The process's choices. Not to be changed while another thread calls attention.
inline Choices& choices() {
  static Choices made;
  return made;
}

}  // namespace ringtrain::cuda::hopper
