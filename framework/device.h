// Where a tensor's memory is. Code above kernels/ passes devices on and never assumes the host.
#pragma once

#include <string>

namespace ringtrain {

/// Whether this build has CUDA, and whether it has NCCL: the real ones, or the emulators of the tests. They are not
/// constants of this header, so a file compiles to the same object in every build and a compiler cache serves them all.
extern const bool built_with_cuda;
extern const bool built_with_nccl;

struct Device {
  enum class Kind { cpu, cuda };
  Kind kind = Kind::cpu;
  int index = 0;

  static constexpr Device cpu() { return {}; }
  static constexpr Device cuda(int index) { return {Kind::cuda, index}; }
  constexpr bool is_cpu() const { return kind == Kind::cpu; }
  std::string name() const { return is_cpu() ? "cpu" : "cuda:" + std::to_string(index); }
  friend constexpr bool operator==(const Device&, const Device&) = default;
};

}  // namespace ringtrain
