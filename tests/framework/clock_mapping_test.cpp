// Converts times of one clock to another.
#include "framework/profile/clock_mapping.h"

#include <gtest/gtest.h>

namespace ringtrain {
namespace {

TEST(ClockMapping, IsTheLineThroughTwoMomentsAndKeepsTheOrder) {
  EXPECT_EQ(ClockMapping()(12345), 12345);
  EXPECT_EQ(ClockMapping({.local = 100, .reference = 5100, .error = 7})(160), 5160);
  constexpr std::int64_t hour = 3'600'000'000'000;
  // The reference's clock is initially 2 s behind, and gains 50 microseconds per second.
  const ClockMapping clock({.local = hour, .reference = hour - 2'000'000'000, .error = 30},
                           {.local = 2 * hour, .reference = 2 * hour - 2'000'000'000 + hour / 20'000, .error = 80});
  EXPECT_EQ(clock(hour), hour - 2'000'000'000);
  const std::int64_t later = 2 * hour - 2'000'000'000 + hour / 20'000;
  EXPECT_LE(std::abs(clock(2 * hour) - later), 1);
  EXPECT_LE(std::abs(clock(hour + hour / 2) - (later - hour / 2 - hour / 40'000)), 1);
  EXPECT_EQ(clock.offset(), -2'000'000'000);
  EXPECT_EQ(clock.error(), 80);
  EXPECT_NEAR(clock.rate_difference(), 50e-6, 1e-12);
  for (std::int64_t local = hour; local < hour + 2000; ++local) EXPECT_LE(clock(local), clock(local + 1));
}

}  // namespace
}  // namespace ringtrain
