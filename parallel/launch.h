// Ranks as threads of one process: starts them, hands each its world communicator, and ends them all with the first
// error.
#pragma once

#include <functional>

#include "framework/segments.h"
#include "parallel/communicator.h"

namespace ringtrain {

struct LaunchOptions {
  int ranks = 1;
  double timeout_seconds = 60;
};

/// Runs body(world) on `ranks` threads and returns when all have ended. If one throws, the others are aborted and the
/// first error is rethrown here: an Error as it is, anything else as Error(internal).
void launch_threads(const LaunchOptions& options, const std::function<void(Communicator& world)>& body);

/// Return the threads a rank gets: wanted if > 0, else cores / ranks, at least 1.
int threads_per_rank(std::int64_t wanted, int ranks);

}  // namespace ringtrain
