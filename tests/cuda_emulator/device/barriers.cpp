// Barriers: the last thread to arrive wakes the others.
#include "device/barriers.h"

#include <fmt/format.h>

#include "cuda_emulator_builtins.h"
#include "cuda_emulator_device.h"
#include "device/block.h"

namespace cuda_emulator {

void Barriers::reset() {
  waiting_.clear();
  for (Barrier& barrier : named_) barrier = Barrier{};
}

void Barriers::sync(const std::source_location& where) {
  if (static_cast<int>(waiting_.size()) + 1 == block_.unfinished()) {
    release_all();
    block_.give_way();
  } else {
    waiting_.push_back(block_.thread());
    block_.wait({"__syncthreads", where});
  }
}

void Barriers::release_all() {
  for (const int thread : waiting_) block_.wake(thread);
  waiting_.clear();
}

void Barriers::thread_finished() {
  if (!waiting_.empty() && static_cast<int>(waiting_.size()) == block_.unfinished()) release_all();
}

std::string Barriers::missing(const void* object, int) {
  const auto& barrier = *static_cast<const Barrier*>(object);
  return fmt::format("barrier {}: {} of {} threads have come", barrier.id, barrier.arrived, barrier.expected);
}

// Returns whether this thread completes the barrier.
bool Barriers::arrive(int id, int threads, const std::source_location& where) {
  if (id < 1 || id >= count) block_.fail(fmt::format("named barrier {}: there are 1 to {}", id, count - 1), where);
  if (threads < 1 || threads % Block::warp_lanes != 0) {
    block_.fail(fmt::format("named barrier {} for {} threads, no multiple of 32", id, threads), where);
  }
  Barrier& barrier = named_[static_cast<std::size_t>(id)];
  barrier.id = id;
  if (barrier.arrived == 0) barrier.expected = threads;
  if (barrier.expected != threads) {
    block_.fail(
        fmt::format("named barrier {} for {} threads, while others wait at it for {}", id, threads, barrier.expected),
        where);
  }
  ++barrier.arrived;
  return barrier.arrived == barrier.expected;
}

void Barriers::release(Barrier& barrier) {
  barrier.arrived = 0;
  for (const int thread : barrier.waiting) block_.wake(thread);
  barrier.waiting.clear();
}

// bar.sync and bar.arrive are executed by warps: all lanes arrive at the same time.
static void meet_lanes(Block&, const Lanes&) {}

void Barriers::sync_named(int id, int threads, const std::source_location& where) {
  block_.warp().meet_all("named_barrier_sync", nullptr, meet_lanes, where);
  const bool last = arrive(id, threads, where);
  Barrier& barrier = named_[static_cast<std::size_t>(id)];
  if (last) {
    release(barrier);
    block_.give_way();
  } else {
    barrier.waiting.push_back(block_.thread());
    block_.wait({"named_barrier_sync", where, missing, &barrier});
  }
}

void Barriers::arrive_named(int id, int threads, const std::source_location& where) {
  block_.warp().meet_all("named_barrier_arrive", nullptr, meet_lanes, where);
  if (arrive(id, threads, where)) release(named_[static_cast<std::size_t>(id)]);
}

void sync_threads(Where where) {
  running().barriers().sync(where);
}
void named_barrier_sync(int id, int threads, Where where) {
  running().barriers().sync_named(id, threads, where);
}
void named_barrier_arrive(int id, int threads, Where where) {
  running().barriers().arrive_named(id, threads, where);
}

}  // namespace cuda_emulator
