// Records which thread wrote which words of a block's dynamic shared memory with ordinary stores: memory that TMA or
// wgmma reads must have been fenced by the threads that wrote it. Threads run one at a time, so the changes since a
// thread started are its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cuda_emulator {

class Block;

class SharedWrites {
 public:
  explicit SharedWrites(Block& block) : block_(block) {}

  /// A block begins with this memory. If not on, the other functions do nothing.
  void reset(const void* memory, std::size_t bytes, bool on);
  /// Called before another thread runs: the running thread wrote what has changed since the last call.
  void thread_stops();
  /// TMA and wgmma may read the running thread's writes.
  void fence();
  /// TMA or wgmma (`what`) reads. Throws Error if a thread that wrote there has not fenced.
  void check_read(const char* what, const void* from, std::size_t bytes);
  /// TMA is about to write, and has written.
  void before_copy() { thread_stops(); }
  void after_copy(const void* to, std::size_t bytes);

 private:
  using Word = std::uint32_t;
  static constexpr std::int16_t fenced = -1;
  std::size_t offset_of(const void* address) const;

  Block& block_;
  bool on_ = false;
  const char* memory_ = nullptr;
  std::vector<Word> known_;            // the memory as of the last check
  std::vector<std::int16_t> writers_;  // for each word: the last thread that wrote it without a fence since
  std::vector<std::vector<std::size_t>> of_thread_;
};

}  // namespace cuda_emulator
