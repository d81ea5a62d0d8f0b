// Numbers of 16 bits in files: float16 (IEEE 754-2019, binary16) and bfloat16 (the upper half of a float32). Widening
// is exact. Narrowing rounds once, to the nearest number, ties to even; what is too large becomes infinity, and NaN
// stays NaN. Pure.
#pragma once

#include <cstdint>

namespace ringtrain {

/// Returns the value of a float16.
float float16_value(std::uint16_t bits);
/// Returns the float16 nearest to value.
std::uint16_t float16_bits(float value);
std::uint16_t float16_bits(double value);

/// Returns the value of a bfloat16.
float bfloat16_value(std::uint16_t bits);
/// Returns the bfloat16 nearest to value.
std::uint16_t bfloat16_bits(float value);
std::uint16_t bfloat16_bits(double value);

}  // namespace ringtrain
