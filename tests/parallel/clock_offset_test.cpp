// Clocks that disagree are read within the stated error.
#include "parallel/clock_offset.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "parallel/launch/launch.h"

namespace ringtrain {
namespace {

std::int64_t true_time() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

TEST(ClockOffset, IsWithinItsErrorForAnyBeginOfTheClocks) {
  const std::int64_t begin = true_time();
  launch_threads({.ranks = 4, .timeout_seconds = 60}, [&](Communicator& world) {
    // Each rank's clock begins at another time, and gains a thousandth for each earlier rank.
    const std::int64_t rank = world.rank(), ahead = rank * 12'000'000'000;
    const auto skewed = [&](std::int64_t time) { return time - begin + ahead + (time - begin) * rank / 1000; };
    const auto now = [&] { return skewed(true_time()); };
    const ClockPair first = read_clocks(world, now);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // so that their speeds differ by enough
    const ClockPair last = read_clocks(world, now);
    const ClockMapping clock(first, last);
    EXPECT_LT(clock.error(), 1'000'000'000);
    if (rank == 0) {
      EXPECT_EQ(first.local, first.reference);
      EXPECT_EQ(clock.error(), 0);
      return;
    }
    EXPECT_GT(clock.error(), 0);
    // Rank 0's clock when the local one showed first.local: rank 0's is the true one.
    const auto truth = [&](std::int64_t local) { return (local - ahead) * 1000 / (1000 + rank); };
    for (const std::int64_t local : {first.local, (first.local + last.local) / 2, last.local}) {
      EXPECT_LE(std::abs(clock(local) - truth(local)), clock.error() + 2) << "rank " << rank;
    }
    EXPECT_GT(std::abs(first.local - first.reference), 11'000'000'000);  // it differs greatly from no correction
  });
}

TEST(ClockOffset, OfOneRankIsNone) {
  launch_threads({.ranks = 1, .timeout_seconds = 60}, [&](Communicator& world) {
    const ClockPair pair = read_clocks(world, [] { return std::int64_t{5}; });
    EXPECT_EQ(pair.local, 5);
    EXPECT_EQ(pair.reference, 5);
    EXPECT_EQ(pair.error, 0);
  });
}

}  // namespace
}  // namespace ringtrain
