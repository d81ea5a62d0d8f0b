// Philox compared with its published vectors; moments of the distributions; permutations.
#include "framework/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "framework/error.h"

namespace ringtrain {
namespace {

using Words = std::array<std::uint32_t, 4>;

// From the file kat_vectors of Random123 1.14 (D. E. Shaw Research), lines "philox4x32 10".
TEST(Random, PhiloxGivesThePublishedAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr std::uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox4x32({ones, ones, ones, ones}, {ones, ones}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, SeedPurposeAndIndexFillKeyAndCounter) {
  EXPECT_EQ(random_words(0x0807060504030201, Purpose::data_order, 0x1817161514131211),
            philox4x32({0x14131211, 0x18171615, 2, 0}, {0x04030201, 0x08070605}));
  const Words words = random_words(5, Purpose::test, 9);
  EXPECT_EQ(random_bits(5, Purpose::test, 9), std::uint64_t{words[1]} << 32 | words[0]);
}

TEST(Random, UniformNumbersHaveTheirMomentsAndRange) {
  constexpr int n = 200000;
  double sum = 0, squares = 0, lowest = 1, highest = 0;
  std::array<int, 16> cells{};
  for (std::uint64_t i = 0; i < n; ++i) {
    const double u = random_uniform(7, Purpose::test, i);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    sum += u;
    squares += u * u;
    lowest = std::min(lowest, u);
    highest = std::max(highest, u);
    ++cells[u * 16];
  }
  // Five deviations of each estimate.
  EXPECT_NEAR(sum / n, 0.5, 5 * std::sqrt(1.0 / 12 / n));
  EXPECT_NEAR(squares / n, 1.0 / 3, 5 * std::sqrt(4.0 / 45 / n));
  EXPECT_LT(lowest, 1e-4);
  EXPECT_GT(highest, 1 - 1e-4);
  double chi2 = 0;
  for (int cell : cells) chi2 += (cell - n / 16.0) * (cell - n / 16.0) / (n / 16.0);
  EXPECT_LT(chi2, 50);  // 15 degrees of freedom: mean 15, stddev 5.5
}

TEST(Random, NormalNumbersHaveTheirMomentsAndTails) {
  constexpr int n = 400000;
  double m1 = 0, m2 = 0, m3 = 0, m4 = 0, neighbors = 0, previous = 0;
  int beyond = 0;
  for (std::uint64_t i = 0; i < n; ++i) {
    const double x = random_normal(11, Purpose::weights, i);
    ASSERT_TRUE(std::isfinite(x));
    m1 += x;
    m2 += x * x;
    m3 += x * x * x;
    m4 += x * x * x * x;
    neighbors += x * previous;
    previous = x;
    beyond += std::abs(x) > 1.959963984540054;
  }
  const double stddev = 1 / std::sqrt(static_cast<double>(n));
  EXPECT_NEAR(m1 / n, 0, 5 * stddev);
  EXPECT_NEAR(m2 / n, 1, 5 * std::sqrt(2.0) * stddev);
  EXPECT_NEAR(m3 / n, 0, 5 * std::sqrt(15.0) * stddev);
  EXPECT_NEAR(m4 / n, 3, 5 * std::sqrt(96.0) * stddev);
  EXPECT_NEAR(neighbors / n, 0, 5 * stddev);
  EXPECT_NEAR(static_cast<double>(beyond) / n, 0.05, 5 * std::sqrt(0.05 * 0.95) * stddev);
}

TEST(Random, BelowReachesEveryValueEvenly) {
  for (const std::uint64_t bound : {1u, 2u, 3u, 7u, 10u}) {
    std::vector<int> counts(bound);
    constexpr int n = 50000;
    for (std::uint64_t i = 0; i < n; ++i) {
      const std::uint64_t value = random_below(3, Purpose::test, i, bound);
      ASSERT_LT(value, bound);
      ++counts[value];
    }
    const double p = 1.0 / static_cast<double>(bound);
    for (int count : counts) EXPECT_NEAR(count, n * p, 5 * std::sqrt(n * p * (1 - p)) + 1e-9);
  }
  EXPECT_LT(random_below(3, Purpose::test, 0, ~std::uint64_t{0}), ~std::uint64_t{0});
  EXPECT_THROW(random_below(3, Purpose::test, 0, 0), Error);
}

TEST(Random, APermutationHitsEveryElementOnce) {
  for (std::uint64_t size = 1; size <= 300; ++size) {
    for (const std::uint64_t index : {0u, 1u, 77u}) {
      const Permutation permutation(size, 42, Purpose::data_order, index);
      std::vector<bool> hit(size);
      for (std::uint64_t i = 0; i < size; ++i) {
        const std::uint64_t image = permutation(i);
        ASSERT_LT(image, size);
        ASSERT_FALSE(hit[image]) << "size " << size << ", element " << i;
        hit[image] = true;
      }
    }
  }
  constexpr std::uint64_t size = 1'000'003;
  const Permutation permutation(size, 42, Purpose::data_order, 3);
  std::vector<bool> hit(size);
  for (std::uint64_t i = 0; i < size; ++i) hit[permutation(i)] = true;
  EXPECT_EQ(std::count(hit.begin(), hit.end(), true), static_cast<std::ptrdiff_t>(size));
}

TEST(Random, AHugePermutationStaysInRangeAndDoesNotRepeat) {
  for (const std::uint64_t size : {(std::uint64_t{1} << 40) + 1, std::uint64_t{1} << 63, ~std::uint64_t{0}}) {
    const Permutation permutation(size, 9, Purpose::test, 5);
    std::set<std::uint64_t> images;
    for (std::uint64_t i = 0; i < 2000; ++i) {
      images.insert(permutation(i));
      images.insert(permutation(size - 1 - i));
    }
    EXPECT_EQ(images.size(), 4000u);
    EXPECT_LT(*images.rbegin(), size);
    EXPECT_GT(*images.rbegin(), size - size / 100);  // and they spread over the range
    EXPECT_LT(*images.begin(), size / 100);
  }
  EXPECT_THROW(Permutation(10, 1, Purpose::test, 0)(10), Error);
}

TEST(Random, PermutationsOfOtherSeedsAndIndicesDiffer) {
  constexpr std::uint64_t size = 1000;
  const Permutation a(size, 1, Purpose::data_order, 0), b(size, 1, Purpose::data_order, 1),
      c(size, 2, Purpose::data_order, 0), d(size, 1, Purpose::test, 0);
  int same = 0, fixed = 0, neighbors = 0;
  for (std::uint64_t i = 0; i < size; ++i) {
    same += (a(i) == b(i)) + (a(i) == c(i)) + (a(i) == d(i)) + (b(i) == c(i));
    fixed += a(i) == i;
    if (i + 1 < size) neighbors += a(i + 1) == a(i) + 1;
  }
  // Each of these counts is Poisson: means 4, 1 and 1.
  EXPECT_LT(same, 20);
  EXPECT_LT(fixed, 10);
  EXPECT_LT(neighbors, 10);
}

}  // namespace
}  // namespace ringtrain
