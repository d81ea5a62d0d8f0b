// Pairs of bfloat16 in the 32-bit registers of tensor instructions: the first element in the low half.
#pragma once

#include <bit>
#include <cstdint>

namespace cuda_emulator {

inline float low_bf16(std::uint32_t pair) {
  return std::bit_cast<float>(pair << 16);
}
inline float high_bf16(std::uint32_t pair) {
  return std::bit_cast<float>(pair & 0xffff0000u);
}

}  // namespace cuda_emulator
