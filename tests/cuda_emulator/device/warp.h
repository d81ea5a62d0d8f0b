// A warp of the running block: its lanes meet at collectives. Lanes with the same mask meet; the last one to arrive
// does the work for all.
#pragma once

#include <array>
#include <cstdint>
#include <source_location>
#include <string>
#include <vector>

namespace cuda_emulator {

class Block;

/// The arguments of a collective's lanes: one pointer per lane, into its own stack.
struct Lanes {
  std::uint32_t present = 0;
  std::array<void*, 32> argument{};

  template <class T>
  T& of(int lane) const {
    return *static_cast<T*>(argument[static_cast<std::size_t>(lane)]);
  }
  bool has(int lane) const { return (present >> lane & 1u) != 0; }
};

class Warp {
 public:
  using Complete = void (*)(Block& block, const Lanes& lanes);

  /// first_thread: of the block. A lane that does not exist in the block counts as finished.
  void reset(Block& block, int first_thread, int lanes);

  /// Returns when every unfinished lane of the mask has called with the same mask, name, and complete, which is then
  /// called once. The names are literals.
  void meet(const char* name, std::uint32_t mask, void* argument, Complete complete, const std::source_location& where);
  /// The same for an instruction that needs all 32 lanes (.aligned).
  void meet_all(const char* name, void* argument, Complete complete, const std::source_location& where);

  std::uint32_t unfinished() const { return unfinished_; }
  void lane_finished(int lane);

 private:
  struct Meeting {
    const char* name;
    std::uint32_t mask;
    Complete complete;
    Lanes lanes;
  };
  static std::string missing(const void* warp, int thread);
  bool completed(std::size_t meeting);

  Block* block_ = nullptr;
  int first_thread_ = 0;
  std::uint32_t unfinished_ = 0;
  std::vector<Meeting> meetings_;
};

}  // namespace cuda_emulator
