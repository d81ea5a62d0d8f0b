// Checks that a run's checkpoints fit on the disk, before its first step: if the disk were full at the first save, all
// steps until then would be lost.
#pragma once

#include <cstdint>
#include <string>

#include "train/run/run.h"

namespace ringtrain {

/// What a run's checkpoints need, and what is free in its folder's file system, in bytes.
struct CheckpointSpace {
  std::string folder;        // of the run
  std::int64_t each = 0;     // one checkpoint
  std::int64_t most = 0;     // how many exist at a time, including those that a resumed run finds
  std::int64_t pending = 0;  // how many of these are still to be written; 0: the run saves none
  std::int64_t free = 0;
};
CheckpointSpace checkpoint_space(const Run& run);

/// Returns these numbers as a line.
std::string space_text(const CheckpointSpace& space);

/// Throws Error(usage) if not even one more checkpoint fits; calls log() with a warning if one fits, but not all that
/// will exist at a time.
void check_space(const CheckpointSpace& space, const Log& log);

}  // namespace ringtrain
