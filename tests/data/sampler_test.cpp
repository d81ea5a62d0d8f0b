// The order of samples: exact epochs, files in their shares, the same on every mesh (it is a function of only i).
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "data/sampler.h"
#include "framework/error.h"

namespace ringtrain {
namespace {

TEST(SamplerTest, EveryEpochHoldsEveryWindowOnceInItsOwnOrder) {
  const Sampler sampler({37}, {1.0}, 5);
  EXPECT_EQ(sampler.windows(), 37);
  std::vector<std::vector<std::int64_t>> orders;
  for (std::int64_t epoch = 0; epoch < 4; ++epoch) {
    std::vector<std::int64_t> order;
    for (std::int64_t i = 0; i < 37; ++i) {
      const Sample sample = sampler.sample(epoch * 37 + i);
      EXPECT_EQ(sample.epoch, epoch);
      EXPECT_EQ(sample.global_index, sample.window);
      order.push_back(sample.window);
    }
    EXPECT_EQ(std::set<std::int64_t>(order.begin(), order.end()).size(), 37u);
    EXPECT_FALSE(std::ranges::is_sorted(order));
    for (const auto& other : orders) EXPECT_NE(order, other);
    orders.push_back(order);
  }
}

TEST(SamplerTest, SeedDecidesTheOrder) {
  const auto order = [](std::uint64_t seed) {
    const Sampler sampler({100}, {1.0}, seed);
    std::vector<std::int64_t> windows;
    for (std::int64_t i = 0; i < 100; ++i) windows.push_back(sampler.sample(i).window);
    return windows;
  };
  EXPECT_EQ(order(1), order(1));
  EXPECT_NE(order(1), order(2));
}

TEST(SamplerTest, FilesKeepTheirSharesAndTheirOwnEpochs) {
  const std::vector<std::int64_t> windows{10, 7, 23};
  const Sampler sampler(windows, {5.0, 3.0, 2.0}, 9);
  std::map<int, std::vector<Sample>> by_file;
  for (std::int64_t i = 0; i < 1000; ++i) {
    const Sample sample = sampler.sample(i);
    by_file[sample.file].push_back(sample);
    // No file is ever more than one sample off its share.
    if (sample.file == 0) {
      EXPECT_NEAR(static_cast<double>(by_file[0].size()), 0.5 * static_cast<double>(i + 1), 1.0);
    }
  }
  EXPECT_EQ(by_file[0].size(), 500u);
  EXPECT_EQ(by_file[1].size(), 300u);
  EXPECT_EQ(by_file[2].size(), 200u);
  const std::int64_t first[] = {0, 10, 17};
  for (int file = 0; file < 3; ++file) {
    const auto count = static_cast<std::size_t>(windows[file]);
    for (std::size_t k = 0; k + count <= by_file[file].size(); k += count) {
      std::set<std::int64_t> seen;
      for (std::size_t j = k; j < k + count; ++j) {
        const Sample& sample = by_file[file][j];
        EXPECT_EQ(sample.epoch, static_cast<std::int64_t>(k / count));
        EXPECT_EQ(sample.global_index, first[file] + sample.window);
        seen.insert(sample.window);
      }
      EXPECT_EQ(seen.size(), count);
    }
  }
}

TEST(SamplerTest, FilesOfOneSizeDoNotShareAnOrder) {
  const Sampler sampler({50, 50}, {1.0, 1.0}, 3);
  std::vector<std::int64_t> orders[2];
  for (std::int64_t i = 0; i < 100; ++i) {
    const Sample sample = sampler.sample(i);
    orders[sample.file].push_back(sample.window);
  }
  EXPECT_EQ(orders[0].size(), 50u);
  EXPECT_NE(orders[0], orders[1]);
}

TEST(SamplerTest, WeightsThatNoShortPeriodMeets) {
  const Sampler sampler({5, 5, 5}, {1.0, 3.14159, 1e-9}, 1);
  std::map<int, int> count;
  for (std::int64_t i = 0; i < 10000; ++i) ++count[sampler.sample(i).file];
  EXPECT_NEAR(count[0], 2414, 20);
  EXPECT_NEAR(count[1], 7585, 20);
  EXPECT_EQ(count[2], 10);  // at least one slot of a thousand
}

TEST(SamplerTest, FarAhead) {
  const Sampler sampler({1, 3}, {1.0, 1.0}, 1);
  const Sample sample = sampler.sample(std::int64_t{1} << 40);  // an epoch beyond 24 bits
  EXPECT_EQ(sample.epoch, std::int64_t{1} << 39);
  EXPECT_EQ(sample.window, 0);
}

TEST(SamplerTest, RefusesWhatCannotBeSampled) {
  EXPECT_THROW(Sampler({5, 0}, {1.0, 1.0}, 1), Error);
  EXPECT_THROW(Sampler({5, 5}, {1.0, 0.0}, 1), Error);
  EXPECT_THROW(Sampler({5, 5}, {1.0, -1.0}, 1), Error);
  EXPECT_THROW(Sampler({5}, {1.0, 1.0}, 1), Error);
}

}  // namespace
}  // namespace ringtrain
