// Ranks as threads of this process, and how many threads and ranks a machine can run. The first error of any rank ends
// them all. launcher.h chooses between threads and processes.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "framework/config/choices.h"
#include "parallel/communicator.h"

namespace ringtrain {

struct LaunchOptions {
  int ranks = 1;
  double timeout_seconds = 60;
  Backend backend = Backend::automatic;
  /// If thread ranks have not ended this long after the first error, because they continue to compute, the process ends
  /// (with the error's code). 0: waits for them. (For ranks that are processes, see MpiWorld.)
  double unwinding_seconds = 0;
};

using RankBody = std::function<void(Communicator& world)>;

/// Throws Error(usage) for options with no rank, or no timeout.
void require_ranks(const LaunchOptions& options);

/// Runs body(world) on `ranks` threads and returns when all have ended. If one throws, the others are aborted and the
/// first error is rethrown here: an Error unchanged; std::bad_alloc as Error(rank), any other std::exception as
/// Error(internal), and anything else as Error(usage). calls, if not null, then receives the last calls of each rank,
/// as lines.
void launch_threads(const LaunchOptions& options, const RankBody& body, std::string* calls = nullptr);

/// Runs body. If it throws, the exception aborts world before it propagates, so that no other rank waits for this one
/// while the body's memory is freed; an exception other than an Error becomes one as in launch_threads.
void abort_on_error(Communicator& world, const std::function<void()>& body);

/// Returns the number of threads of a rank: wanted if > 0, otherwise available_cores() / ranks, at least 1.
int threads_per_rank(std::int64_t wanted, int ranks);
/// Throws Error(usage), with the numbers, if one machine cannot run this many ranks with this many compute threads.
void require_runnable(std::int64_t ranks, std::int64_t threads);
/// Returns a warning with the numbers if ranks with this many threads exceed the cores; otherwise "".
std::string oversubscription(int ranks, int threads, int cores);

}  // namespace ringtrain
