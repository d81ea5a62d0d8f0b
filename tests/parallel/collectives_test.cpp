// Compares collectives with plain loops over all ranks' inputs: the bits are those of a sum in rank order, for sizes
// that are not divisible, are smaller than the number of ranks, or are zero.
#include "parallel/collectives.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/parallel/run_ranks.h"
#include "tests/support/random_tensor.h"

namespace ringtrain::testing {
namespace {

constexpr CallSite test_site{.operation = "test collective"};

/// A rank's input, which every rank can compute for every other. Magnitudes vary greatly, so the bits depend on the
/// order.
template <class T>
std::vector<T> values_of(int rank, std::int64_t n) {
  std::mt19937 random(static_cast<unsigned>(1000 * n + rank));
  std::normal_distribution<double> normal;
  std::vector<T> values(n);
  for (T& value : values) value = static_cast<T>(std::ldexp(normal(random), static_cast<int>(random() % 20)));
  return values;
}

template <class T>
std::vector<T> sum_in_rank_order(int ranks, std::int64_t n) {
  std::vector<T> sum = values_of<T>(0, n);
  for (int rank = 1; rank < ranks; ++rank) {
    const std::vector<T> values = values_of<T>(rank, n);
    for (std::size_t i = 0; i < values.size(); ++i) sum[i] = sum[i] + values[i];
  }
  return sum;
}

class Collectives : public ::testing::TestWithParam<int> {
 protected:
  int ranks() const { return GetParam(); }
  void run(const std::function<void(Communicator&)>& body) const { testing::run_ranks({.ranks = ranks()}, body); }
};

TEST_P(Collectives, SmallReductionsAndGather) {
  run([&](Communicator& world) {
    for (const std::int64_t n : {0, 1, 3, 1000}) {
      std::vector<double> sum = values_of<double>(world.rank(), n);
      all_reduce_sum(world, std::span<double>(sum), test_site);
      EXPECT_EQ(sum, sum_in_rank_order<double>(ranks(), n));
    }
    const std::int64_t own = 100 - 7 * world.rank();
    std::vector<std::int64_t> sum{own, 1}, most{own, -own};
    all_reduce_sum(world, std::span<std::int64_t>(sum), test_site);
    EXPECT_EQ(sum, (std::vector<std::int64_t>{100 * ranks() - 7 * ranks() * (ranks() - 1) / 2, ranks()}));
    all_reduce_max(world, std::span<std::int64_t>(most), test_site);
    EXPECT_EQ(most, (std::vector<std::int64_t>{100, 7 * (ranks() - 1) - 100}));
    const std::vector<std::int64_t> pair{world.rank(), 10 * world.rank()};
    std::vector<std::int64_t> expected;
    for (int rank = 0; rank < ranks(); ++rank) expected.insert(expected.end(), {rank, 10 * rank});
    EXPECT_EQ(all_gather(world, pair, test_site), expected);
  });
}

TEST_P(Collectives, Broadcast) {
  run([&](Communicator& world) {
    for (int root = 0; root < ranks(); ++root) {
      for (const std::int64_t n : {0, 1, 777}) {
        std::vector<float> x = values_of<float>(world.rank(), n);
        broadcast(world, view_of(x), root, test_site);
        EXPECT_EQ(x, values_of<float>(root, n));
      }
    }
  });
}

template <class T>
void check_reduce_scatter(Communicator& world) {
  ThreadPool pool(1);
  Stream stream(pool);
  const int ranks = world.size(), rank = world.rank();
  for (const std::int64_t n : {0, 1, 2, 5, 64, 1001}) {
    std::vector<T> x = values_of<T>(rank, n);
    std::vector<T> staging(reduce_scatter_staging(n, ranks) + 3, T(77));  // a buffer for more
    ReduceScatter reduction;
    EXPECT_FALSE(reduction.pending());
    reduction.start(world, view_of(x), view_of(staging), test_site);
    EXPECT_TRUE(reduction.pending());
    reduction.finish(stream);
    EXPECT_FALSE(reduction.pending());
    const std::vector<T> sum = sum_in_rank_order<T>(ranks, n);
    std::vector<T> expected = values_of<T>(rank, n);
    const Slice own = slice_of(n, ranks, rank);
    for (auto i = static_cast<std::size_t>(own.begin); i < static_cast<std::size_t>(own.end); ++i) expected[i] = sum[i];
    EXPECT_EQ(x, expected) << "n " << n << ", rank " << rank;
    EXPECT_EQ(std::vector<T>(staging.end() - 3, staging.end()), std::vector<T>(3, T(77))) << "staging as stated";
    all_gather_slices(world, view_of(x), test_site);
    EXPECT_EQ(x, sum);
  }
}

TEST_P(Collectives, ReduceScatterThenGatherIsTheSumInRankOrder) {
  run([](Communicator& world) {
    check_reduce_scatter<double>(world);
    check_reduce_scatter<float>(world);
  });
}

TEST_P(Collectives, ReduceScattersMayOverlap) {
  run([&](Communicator& world) {
    ThreadPool pool(1);
    Stream stream(pool);
    constexpr std::int64_t n = 103;
    std::vector<std::vector<double>> x(3, values_of<double>(world.rank(), n));
    std::vector<std::vector<double>> staging(3);
    std::vector<ReduceScatter> reductions(3);
    for (std::size_t i = 0; i < 3; ++i) {
      staging[i].resize(reduce_scatter_staging(n, ranks()));
      reductions[i].start(world, view_of(x[i]), view_of(staging[i]), test_site);
    }
    for (const std::size_t i : {2, 0, 1}) {
      reductions[i].finish(stream);
      all_gather_slices(world, view_of(x[i]), test_site);
      EXPECT_EQ(x[i], sum_in_rank_order<double>(ranks(), n));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, ::testing::Values(1, 2, 3, 4, 5, 8));

TEST(Slices, CoverEverythingOnceAndAreEven) {
  for (const std::int64_t n : {0, 1, 7, 8, 9, 1000003}) {
    for (const int ranks : {1, 2, 3, 8}) {
      std::int64_t at = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const Slice slice = slice_of(n, ranks, rank);
        EXPECT_EQ(slice.begin, at);
        EXPECT_GE(slice.count(), n / ranks);
        EXPECT_LE(slice.count(), (n + ranks - 1) / ranks);
        if (rank > 0) {
          EXPECT_LE(slice.count(), slice_of(n, ranks, rank - 1).count());
        }
        at = slice.end;
      }
      EXPECT_EQ(at, n);
    }
  }
}

}  // namespace
}  // namespace ringtrain::testing
