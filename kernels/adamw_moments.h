// How AdamW stores an element's moments, on CPUs and GPUs: as they are, or in bfloat16, rounded at random, up as often
// as the dropped bits ask for. The expected value is the exact one, so that a second moment that decays by less than
// the distance of two bfloat16 numbers still decays. The random bits are a function of seed, step, and element.
#pragma once

#include <bit>
#include <cstdint>

#include "framework/dtype.h"
#include "framework/random.h"

namespace ringtrain {

/// Returns 32 random bits: a bijection of x ("lowbias32": Wellons, "Prospecting for Hash Functions", 2018).
constexpr std::uint32_t scrambled(std::uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352dU;
  x = (x ^ (x >> 15)) * 0x846ca68bU;
  return x ^ (x >> 16);
}

/// Returns x with its lower half dropped, after `random`, below 2^16, was added to it. NaN remains NaN.
constexpr BFloat16 rounded_at_random(float x, std::uint32_t random) {
  if (x != x) return BFloat16::rounded(x);
  return {static_cast<std::uint16_t>((std::bit_cast<std::uint32_t>(x) + random) >> 16)};
}

/// Returns the number of an element (the parameter's stream << 40 | element) among the step's random bits.
inline std::uint32_t number_of(std::uint64_t element, std::uint64_t seed, std::int64_t step) {
  const std::uint64_t index = (element >> 40 << 40) + static_cast<std::uint64_t>(step);
  return static_cast<std::uint32_t>(random_bits(seed, Purpose::rounding, index) + element);
}

/// Stores both moments of the element with this number.
template <class T>
constexpr void store_moments(T& m, T& v, T new_m, T new_v, std::uint32_t) {
  m = new_m;
  v = new_v;
}
constexpr void store_moments(BFloat16& m, BFloat16& v, float new_m, float new_v, std::uint32_t element) {
  const std::uint32_t random = scrambled(element);
  m = rounded_at_random(new_m, random >> 16);
  v = rounded_at_random(new_v, random & 0xffffU);
}

}  // namespace ringtrain
