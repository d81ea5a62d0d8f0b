// Ranks as threads of this process, and how many threads and ranks a machine runs. The first error of any rank ends
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
  /// Thread ranks that have not ended so long after the first error, because they compute on, end with the process (and
  /// the error's code). 0: they are waited for. (Ranks that are processes: see MpiWorld.)
  double unwinding_seconds = 0;
};

using RankBody = std::function<void(Communicator& world)>;

/// Throws Error(usage) of options with no rank, or no timeout.
void require_ranks(const LaunchOptions& options);

/// Runs body(world) on `ranks` threads and returns when all have ended. If one throws, the others are aborted and the
/// first error is rethrown here: an Error as it is, anything else as Error(internal); calls, if not null, then says
/// what each rank did last, as lines.
void launch_threads(const LaunchOptions& options, const RankBody& body, std::string* calls = nullptr);

/// Runs body. What it throws aborts world before it leaves, so that no other rank waits for this one while the body's
/// memory goes; anything but an Error leaves as Error(internal).
void abort_on_error(Communicator& world, const std::function<void()>& body);

/// Returns the threads a rank gets: wanted if > 0, else available_cores() / ranks, at least 1.
int threads_per_rank(std::int64_t wanted, int ranks);
/// Throws Error(usage), with the numbers, if so many ranks of so many compute threads are more than one machine runs.
void require_runnable(std::int64_t ranks, std::int64_t threads);
/// Returns what a person should know, with the numbers, if ranks of so many threads are more than the cores; else "".
std::string oversubscription(int ranks, int threads, int cores);

}  // namespace ringtrain
