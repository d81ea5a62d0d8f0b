#include "framework/storage/half.h"

#include <cmath>

#include "framework/dtype.h"

namespace ringtrain {

namespace {

/// Returns value as a float32 rounded to odd: towards zero, with the last bit set if anything was cut off. Rounding the
/// result to fewer than 23 bits is the same as rounding value itself (Boldo and Melquiond, 2008, "Emulation of FMA and
/// correctly rounded sums", theorem 2).
float rounded_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || !std::isfinite(value)) return nearest;
  const float truncated =
      std::fabs(static_cast<double>(nearest)) > std::fabs(value) ? std::nextafter(nearest, 0.0F) : nearest;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(truncated) | 1U);
}

}  // namespace

std::uint16_t float16_bits(float value) {
  const auto full = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((full >> 16) & 0x8000U);
  const std::uint32_t magnitude = full & 0x7FFFFFFFU;
  constexpr std::uint32_t infinity = 0x7F800000U, first_too_large = 0x477FF000U;  // 65520, half-way beyond 65504
  constexpr std::uint32_t first_normal = 0x38800000U;                             // 2^-14
  if (magnitude > infinity) return sign | 0x7E00U | static_cast<std::uint16_t>((magnitude >> 13) & 0x1FFU);
  if (magnitude >= first_too_large) return sign | 0x7C00U;
  if (magnitude < first_normal) {
    // Adding 0.5 yields a float32 whose last bit is 2^-24, as that of the subnormals, so the addition rounds correctly.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return sign | static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(shifted) - 0x3F000000U);
  }
  const std::uint32_t rounded = magnitude + 0xFFFU + ((magnitude >> 13) & 1U);
  return sign | static_cast<std::uint16_t>((rounded >> 13) - ((127U - 15U) << 10));
}

std::uint16_t float16_bits(double value) {
  return float16_bits(rounded_to_odd(value));
}

std::uint16_t bfloat16_bits(float value) {
  return BFloat16::rounded(value).bits;
}

std::uint16_t bfloat16_bits(double value) {
  return bfloat16_bits(rounded_to_odd(value));
}

}  // namespace ringtrain
