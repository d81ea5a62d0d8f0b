#include "parallel/launch/launch.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <new>
#include <optional>
#include <vector>

#include "framework/cores.h"
#include "framework/counted.h"
#include "framework/standard_streams.h"
#include "framework/threads.h"
#include "parallel/threads/thread_communicator.h"

namespace ringtrain {

namespace {

/// Returns the error with which a rank ends, for the exception that is being handled.
Error error_of_rank(int rank) {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return {ExitCode::rank, fmt::format("rank {}: out of memory, or at the limit of ulimit -v", rank)};
  } catch (const std::exception& error) {
    return {ExitCode::internal, fmt::format("rank {}: {}", rank, error.what())};
  } catch (...) {
    return {ExitCode::usage, fmt::format("rank {}: a function of this program threw a non-standard exception", rank)};
  }
}

/// Keeps the first error and ends all ranks with it.
class FirstError {
 public:
  void keep(const Error& error, Communicator& world) {
    {
      const std::lock_guard lock(mutex_);
      if (!first_) first_.emplace(error.code(), error.what());
    }
    changed_.notify_all();
    world.abort(error);
  }
  void rank_ended() {
    const std::lock_guard lock(mutex_);
    ++ended_;
    changed_.notify_all();
  }
  /// Returns when `ranks` ranks have ended. Ends the process if some have not ended within this many seconds after the
  /// first error.
  void wait(int ranks, double unwinding_seconds) {
    std::unique_lock lock(mutex_);
    const auto all = [&] { return ended_ == ranks; };
    changed_.wait(lock, [&] { return first_ || all(); });
    if (!first_ || unwinding_seconds <= 0 ||
        changed_.wait_for(lock, std::chrono::duration<double>(unwinding_seconds), all)) {
      return;
    }
    write_message(stderr, fmt::format("{} of {} did not stop in time, so the process ends: {}\n", ranks - ended_,
                                      counted(ranks, "rank"), first_->second));
    std::_Exit(static_cast<int>(first_->first));
  }
  void rethrow() const {
    if (first_) throw Error(first_->first, first_->second);
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::pair<ExitCode, std::string>> first_;
  int ended_ = 0;
};

}  // namespace

void require_ranks(const LaunchOptions& options) {
  if (options.ranks < 1) fail(ExitCode::usage, "LaunchOptions has {} ranks, but must have 1 or more", options.ranks);
  if (!(options.timeout_seconds > 0)) {
    fail(ExitCode::usage, "LaunchOptions has a timeout of {} s, but must have more than 0", options.timeout_seconds);
  }
}

void launch_threads(const LaunchOptions& options, const RankBody& body, std::string* calls) {
  require_ranks(options);
  const ThreadWorld world = make_thread_world(options.ranks, options.timeout_seconds);
  FirstError first;
  std::vector<Thread> threads;
  const auto run = [&](Communicator& communicator) {
    try {
      body(communicator);
    } catch (...) {
      first.keep(error_of_rank(communicator.rank()), communicator);
    }
    first.rank_ended();
  };
  for (const auto& communicator : world.ranks) {
    try {
      threads.push_back(start_thread(ExitCode::rank,
                                     fmt::format("the thread of rank {} of {}", communicator->rank(), options.ranks),
                                     [&run, &communicator] { run(*communicator); }));
    } catch (const Error& error) {
      first.keep(error, *communicator);
      break;
    }
  }
  first.wait(static_cast<int>(threads.size()), options.unwinding_seconds);
  for (Thread& thread : threads) thread.join();
  if (calls) *calls = world.calls();
  first.rethrow();
}

void abort_on_error(Communicator& world, const std::function<void()>& body) {
  try {
    body();
  } catch (...) {
    const Error error = error_of_rank(world.rank());
    world.abort(error);
    throw Error(error);
  }
}

int threads_per_rank(std::int64_t wanted, int ranks) {
  if (wanted < 0) fail(ExitCode::usage, "{} threads per rank: give 1 or more, or 0 for cores / ranks", wanted);
  if (wanted > 0) return static_cast<int>(wanted);
  return std::max(1, available_cores() / ranks);
}

void require_runnable(std::int64_t ranks, std::int64_t threads) {
  constexpr std::int64_t max_threads = 4096;
  if (ranks * threads <= max_threads) return;
  fail(ExitCode::usage,
       "{} with {} each: {} threads on this machine, but at most {} are allowed; use a smaller "
       "mesh or fewer threads per rank, or start ranks on several machines with scripts/launch",
       counted(ranks, "rank"), counted(threads, "compute thread"), ranks * threads, max_threads);
}

std::string oversubscription(int ranks, int threads, int cores) {
  if (ranks * threads <= cores) return "";
  return fmt::format(
      "{} compute threads ({} x {}) share {}: the results are the same, but the run is no faster than with {}",
      ranks * threads, counted(ranks, "rank"), threads, counted(cores, "core"), counted(cores, "thread"));
}

}  // namespace ringtrain
