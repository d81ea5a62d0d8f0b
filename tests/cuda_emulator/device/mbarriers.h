// The mbarriers of a block, identified by the address of their word in shared memory.
#pragma once

#include <cstdint>
#include <source_location>
#include <string>
#include <unordered_map>
#include <vector>

namespace cuda_emulator {

class Block;

class Mbarriers {
 public:
  explicit Mbarriers(Block& block) : block_(block) {}

  void init(std::uint64_t* word, std::uint32_t arrivals, const std::source_location& where);
  /// Barriers that this thread has initialized may be passed to TMA from now on.
  void fence_init();
  /// Announces bytes, then arrives.
  void arrive(std::uint64_t* word, std::uint32_t bytes, const std::source_location& where);
  void wait(std::uint64_t* word, std::uint32_t parity, const std::source_location& where);
  bool try_wait(std::uint64_t* word, std::uint32_t parity, const std::source_location& where);

  /// A copy has transferred bytes.
  void complete(std::uint64_t* word, std::uint32_t bytes);
  /// Throws Error unless the word is a barrier that TMA may use.
  void check_for_copy(std::uint64_t* word);
  bool awaited(std::uint64_t* word) const;
  void reset() { barriers_.clear(); }

 private:
  struct Barrier {
    std::uint32_t expected = 0, pending = 0;
    std::int64_t bytes = 0;  // announced minus transferred
    std::uint32_t phase = 0;
    int initialized_by = -1;
    bool fenced = false;
    std::vector<int> waiting;
  };
  static std::string missing(const void* barrier, int thread);
  Barrier& find(std::uint64_t* word, const std::source_location& where);
  void end_phase_if_done(Barrier& barrier);

  Block& block_;
  std::unordered_map<std::uint64_t*, Barrier> barriers_;
};

}  // namespace cuda_emulator
