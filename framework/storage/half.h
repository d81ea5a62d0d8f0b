// 16-bit numbers in files: float16 (IEEE 754-2019, binary16) and bfloat16 (the upper half of a float32). Widening is
// exact. Narrowing rounds once, to the nearest number, ties to even; numbers that are too large become infinity, and
// NaN remains NaN. Pure.
#pragma once

#include <bit>
#include <cstdint>

namespace ringtrain {

/// Returns the value of a float16. (Inline and without a branch: models have billions of them.)
inline float float16_value(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16, magnitude = bits & 0x7FFFU;
  // Moved to their positions in a float32, the fraction and exponent represent 2^-112 times the number, also for zero
  // and subnormals.
  const float value = std::bit_cast<float>(magnitude << 13) * 0x1p112F;
  const std::uint32_t wide = magnitude < 0x7C00U ? std::bit_cast<std::uint32_t>(value) : magnitude << 13 | 0x7F800000U;
  return std::bit_cast<float>(sign | wide);
}
/// Returns the float16 nearest to value.
std::uint16_t float16_bits(float value);
std::uint16_t float16_bits(double value);

/// Returns the bfloat16 nearest to value. (framework/dtype.h has the inverse.)
std::uint16_t bfloat16_bits(float value);
std::uint16_t bfloat16_bits(double value);

}  // namespace ringtrain
