#include "train/run/checkpoint_space.h"

#include <fmt/format.h>

#include <algorithm>

#include "framework/error.h"
#include "framework/profile/progress.h"
#include "framework/storage/files.h"
#include "train/engine/checkpoint_size.h"

namespace ringtrain {

CheckpointSpace checkpoint_space(const Run& run) {
  const CheckpointConfig& config = run.config.checkpoint;
  const std::int64_t saves = saves_to_come(config, run.start.step, run.last_step);
  const auto steps = run.folder.checkpoints().steps();
  const std::int64_t there = std::ranges::count_if(steps, [&](std::int64_t step) { return step <= run.start.step; });
  // Saves come before deletions. A run that plans no save saves once if a signal ends it.
  const std::int64_t most = std::max(most_at_a_time(config, there + std::max<std::int64_t>(saves, 1)), there + 1);
  return {.folder = run.folder.checkpoints_path(),
          .each = checkpoint_bytes(run.config, run.table),
          .most = most,
          .pending = saves == 0 ? 0 : most - there,
          .free = free_bytes(nearest_existing(run.folder.checkpoints_path()), ExitCode::usage)};
}

std::string space_text(const CheckpointSpace& space) {
  const std::string free = space.free == INT64_MAX ? "an unknown number of bytes" : human_bytes(space.free);
  return fmt::format("checkpoints: {} each, at most {} at a time ({}); {} are free at {}\n", human_bytes(space.each),
                     space.most, human_bytes(space.most * space.each), free, space.folder);
}

void check_space(const CheckpointSpace& space, const Log& log) {
  if (space.pending == 0 || space.pending * space.each <= space.free) return;
  const std::string needs =
      fmt::format("a checkpoint takes {} bytes, and the disk of {} has {} free", space.each, space.folder, space.free);
  if (space.each > space.free) {
    fail(ExitCode::usage, "{}: the run could not save; free some space or choose another --output", needs);
  }
  log(fmt::format(
      "warning: {}, but the run needs room for {} more checkpoints at a time; free {} bytes, or lower checkpoint.keep",
      needs, space.pending, space.pending * space.each - space.free));
}

}  // namespace ringtrain
