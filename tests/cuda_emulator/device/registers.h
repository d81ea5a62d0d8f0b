// How a block's threads share out their registers (setmaxnreg): each has so many at first, and what some give back
// others may take. An increase waits for that, as hardware does, so a share-out that never adds up is a deadlock.
#pragma once

#include <source_location>
#include <string>
#include <vector>

namespace cuda_emulator {

class Block;

class Registers {
 public:
  explicit Registers(Block& block) : block_(block) {}

  void reset(int block_threads);
  /// The running thread will have `registers`.
  void set(int registers, bool increase, const std::source_location& where);
  /// Throws Error if a setmaxnreg was executed by a part of a warpgroup only.
  void check_whole_warpgroups() const;

 private:
  static std::string missing(const void* registers, int thread);

  Block& block_;
  int free_ = 0;              // given back, of the whole block
  std::vector<int> of_;       // a thread
  std::vector<int> changes_;  // a thread has made
  std::vector<int> waiting_;
};

}  // namespace cuda_emulator
