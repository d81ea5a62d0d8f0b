// The barriers of a block: __syncthreads, and the 15 named ones of PTX (bar.sync, bar.arrive).
#pragma once

#include <array>
#include <source_location>
#include <string>
#include <vector>

namespace cuda_emulator {

class Block;

class Barriers {
 public:
  static constexpr int count = 16;

  explicit Barriers(Block& block) : block_(block) {}

  /// __syncthreads: returns when every unfinished thread of the block has arrived.
  void sync(const std::source_location& where);
  /// bar.sync id, threads: returns when this many threads have arrived, by sync or arrive.
  void sync_named(int id, int threads, const std::source_location& where);
  /// bar.arrive id, threads: counts and continues.
  void arrive_named(int id, int threads, const std::source_location& where);

  /// A thread has finished, so __syncthreads may now be complete.
  void thread_finished();
  void reset();

 private:
  struct Barrier {
    int id = 0, expected = 0, arrived = 0;
    std::vector<int> waiting;
  };
  static std::string missing(const void* barrier, int thread);
  bool arrive(int id, int threads, const std::source_location& where);
  void release(Barrier& barrier);
  void release_all();

  Block& block_;
  std::vector<int> waiting_;  // at __syncthreads
  std::array<Barrier, count> named_;
};

}  // namespace cuda_emulator
