// How a block's threads share their registers (setmaxnreg): each begins with the same number, and others may take what
// some release. An increase waits for that, as in hardware, so a distribution that never adds up is a deadlock.
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
  /// Throws Error if only a part of a warpgroup executed a setmaxnreg.
  void check_whole_warpgroups() const;

 private:
  static std::string missing(const void* registers, int thread);

  Block& block_;
  int free_ = 0;              // released, of the whole block
  std::vector<int> of_;       // of each thread
  std::vector<int> changes_;  // made by each thread
  std::vector<int> waiting_;
};

}  // namespace cuda_emulator
