// bfloat16 numbers for tests, with independent rounding.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "framework/dtype.h"
#include "tests/support/kernel_harness.h"

namespace ringtrain {

using Floats = std::vector<float>;
using Halves = std::vector<BFloat16>;

/// The rounding of the tests: the nearer of the two bfloat16 numbers around x, or the even one if both are equally
/// near.
inline BFloat16 nearest(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const BFloat16 below{static_cast<std::uint16_t>(bits >> 16)}, above{static_cast<std::uint16_t>((bits >> 16) + 1)};
  const double to_below = std::abs(static_cast<double>(x) - static_cast<double>(below.value()));
  const double to_above = std::abs(static_cast<double>(above.value()) - static_cast<double>(x));
  if (to_below != to_above) return to_below < to_above ? below : above;
  return (below.bits & 1U) == 0 ? below : above;
}

inline Halves rounded(const Floats& x) {
  Halves y;
  for (const float value : x) y.push_back(nearest(value));
  return y;
}
inline Floats wide(const Halves& x) {
  Floats y;
  for (const BFloat16 value : x) y.push_back(value.value());
  return y;
}
inline Halves random_halves(std::int64_t n, std::uint64_t seed, double stddev = 1) {
  return rounded(testing::random_vector<float>(n, seed, stddev));
}

}  // namespace ringtrain
