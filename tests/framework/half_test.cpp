// float16 and bfloat16: each of their numbers is preserved, and rounding is to nearest, ties to even, once.
#include "framework/storage/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace ringtrain::testing {
namespace {

TEST(Half, EveryFloat16HasItsValueAndComesBack) {
  for (std::uint32_t bits = 0; bits < 65536; ++bits) {
    const auto half = static_cast<std::uint16_t>(bits);
    const float value = float16_value(half);
    const int exponent = static_cast<int>(bits >> 10 & 31), fraction = static_cast<int>(bits & 1023);
    if (exponent == 31 && fraction != 0) {
      EXPECT_TRUE(std::isnan(value) && std::isnan(float16_value(float16_bits(value))));
      continue;
    }
    const double magnitude = exponent == 31  ? std::numeric_limits<double>::infinity()
                             : exponent == 0 ? std::ldexp(fraction, -24)
                                             : std::ldexp(1024 + fraction, exponent - 25);
    EXPECT_EQ(value, static_cast<float>(bits & 0x8000 ? -magnitude : magnitude)) << bits;
    EXPECT_EQ(std::signbit(value), bits >= 0x8000) << bits;
    EXPECT_EQ(float16_bits(value), half);
    EXPECT_EQ(float16_bits(static_cast<double>(value)), half);
  }
}

/// Checks rounding around a number: what is between two numbers goes to the nearer one, and a tie to the even one.
template <class Bits, class Value>
void expect_nearest(std::uint32_t end, Bits bits_of, Value value_of) {
  for (std::uint32_t bits = 0; bits + 1 < end; ++bits) {
    const auto low = static_cast<std::uint16_t>(bits), high = static_cast<std::uint16_t>(bits + 1);
    const double a = value_of(low), b = value_of(high), middle = (a + b) / 2;
    ASSERT_EQ(bits_of(middle), bits % 2 == 0 ? low : high) << bits;
    ASSERT_EQ(bits_of(std::nextafter(middle, a)), low) << bits;  // rounding to float32 first would make it a tie
    ASSERT_EQ(bits_of(std::nextafter(middle, b)), high) << bits;
    ASSERT_EQ(bits_of(-middle), 0x8000 | (bits % 2 == 0 ? low : high)) << bits;
  }
}

TEST(Half, Float64IsRoundedOnce) {
  expect_nearest(
      0x7C00, [](double v) { return float16_bits(v); }, float16_value);
  expect_nearest(
      0x7F80, [](double v) { return bfloat16_bits(v); }, [](std::uint16_t bits) { return BFloat16{bits}.value(); });
}

TEST(Half, WhatIsTooLargeBecomesInfinity) {
  EXPECT_EQ(float16_bits(65504.0F), 0x7BFF);
  EXPECT_EQ(float16_bits(65519.99F), 0x7BFF);
  EXPECT_EQ(float16_bits(65520.0F), 0x7C00);
  EXPECT_EQ(float16_bits(-1e30), 0xFC00);
  EXPECT_EQ(bfloat16_bits(3.4e38F), 0x7F80);
  EXPECT_EQ(bfloat16_bits(1e300), 0x7F80);
}

}  // namespace
}  // namespace ringtrain::testing
