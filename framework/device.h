// Where a tensor's memory lives. Code above kernels/ passes devices on and never assumes the host.
#pragma once

#include <string>

namespace ringtrain {

/// Whether this build has CUDA: real, or the emulator of the tests.
#if RINGTRAIN_CUDA
inline constexpr bool built_with_cuda = true;
#else
inline constexpr bool built_with_cuda = false;
#endif

/// Whether this build has NCCL, or its emulator.
#if RINGTRAIN_NCCL
inline constexpr bool built_with_nccl = true;
#else
inline constexpr bool built_with_nccl = false;
#endif

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
