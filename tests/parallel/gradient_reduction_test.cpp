// Gradient reduction over the buckets of a parameter table: exact sums in rank order on every owner, the same bits
// whatever the timing, buckets that are issued while others are under way, and weights that come back to everyone.
#include "parallel/gradient_reduction.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "parallel/launch/launch.h"
#include "tests/parallel/run_ranks.h"
#include "tests/parallel/watched_communicator.h"

namespace ringtrain {
namespace {

ParameterTable make_table() {
  ParameterTable table;
  const auto add = [&](const char* name, const Shape& shape, int bucket) {
    Parameter parameter;
    parameter.name = name;
    parameter.shape = shape;
    parameter.bucket = bucket;
    table.add(parameter);
  };
  add("embedding", {57, 8}, 0);
  add("a", {33}, 1);
  add("b", {9, 5}, 1);
  add("c", {1}, 2);
  add("d", {100, 7}, 3);
  add("head", {3, 3}, 4);
  return table;
}

double gradient_of(int rank, std::int64_t i, int step) {
  std::mt19937 random(static_cast<unsigned>(rank + 100 * i + 1000000 * step));
  return std::ldexp(static_cast<double>(random() % 2001) / 1000 - 1, static_cast<int>(random() % 16));
}

/// Runs `steps` reductions; return all ranks' gradients after the last one (each whole buffer).
std::vector<std::vector<float>> reduce(int ranks, int steps, unsigned jitter_seed) {
  const ParameterTable table = make_table();
  std::vector<std::vector<float>> results(ranks);
  testing::run_ranks({.ranks = ranks}, [&](Communicator& world) {
    testing::Traffic traffic;
    testing::WatchedCommunicator watched(world, traffic, jitter_seed);
    ThreadPool pool(1);
    Stream stream(pool);
    Allocator allocator(Device::cpu());
    const Parameters parameters(allocator, table, DType::float32, true);
    GradientReduction reduction(allocator, &watched, ranks, parameters, stream);
    const std::int64_t allocations = allocator.allocation_count();
    float* gradients = parameters.all_gradients().as<float>();
    for (int step = 0; step < steps; ++step) {
      for (std::int64_t i = 0; i < table.flat_size(); ++i) {
        gradients[i] = static_cast<float>(gradient_of(world.rank(), i, step));
      }
      for (int bucket = table.buckets() - 1; bucket >= 0; --bucket) reduction.bucket_complete(bucket);
      reduction.finish();
    }
    EXPECT_EQ(allocator.allocation_count(), allocations);
    results[world.rank()].assign(gradients, gradients + table.flat_size());
  });
  testing::share_rows(results);
  return results;
}

TEST(GradientReduction, OwnersHoldSumsInRankOrder) {
  const ParameterTable table = make_table();
  for (const int ranks : {1, 2, 3, 4, 6}) {
    const auto results = reduce(ranks, 3, 0);
    for (int rank = 0; rank < ranks; ++rank) {
      std::int64_t owned = 0;
      for (int bucket = 0; bucket < table.buckets(); ++bucket) {
        const Slice own = GradientReduction::owned(table, bucket, ranks, rank);
        owned += own.count();
        for (std::int64_t i = table.bucket_begin(bucket) + own.begin; i < table.bucket_begin(bucket) + own.end; ++i) {
          float sum = static_cast<float>(gradient_of(0, i, 2));
          for (int other = 1; other < ranks; ++other) sum += static_cast<float>(gradient_of(other, i, 2));
          ASSERT_EQ(results[rank][i], sum)
              << "ranks " << ranks << ", rank " << rank << ", bucket " << bucket << ", element " << i;
        }
      }
      EXPECT_NEAR(static_cast<double>(owned), static_cast<double>(table.flat_size()) / ranks, table.buckets());
    }
  }
}

TEST(GradientReduction, TimingChangesNothing) {
  const auto calm = reduce(4, 2, 0);
  for (unsigned seed = 1; seed <= 5; ++seed) EXPECT_EQ(reduce(4, 2, seed), calm) << "seed " << seed;
}

TEST(GradientReduction, IssuesTwoBucketsBeforeItWaitsForAny) {
  // Rank 0 lets the others begin only after it has issued two buckets: it must not wait for them in between.
  const ParameterTable table = make_table();
  testing::run_ranks({.ranks = 3, .timeout_seconds = 20}, [&](Communicator& world) {
    ThreadPool pool(1);
    Stream stream(pool);
    Allocator allocator(Device::cpu());
    const Parameters parameters(allocator, table, DType::float64, true);
    GradientReduction reduction(allocator, &world, 3, parameters, stream);
    if (world.rank() != 0) world.barrier({});
    for (int bucket = table.buckets() - 1; bucket >= 0; --bucket) {
      if (world.rank() == 0 && bucket == table.buckets() - 3) world.barrier({});
      const TensorView own = parameters.bucket_gradients(bucket);
      std::fill(own.as<double>(), own.as<double>() + own.numel(), 1.0 + world.rank());
      reduction.bucket_complete(bucket);
    }
    reduction.finish();
    for (int bucket = 0; bucket < table.buckets(); ++bucket) {
      const Slice own = GradientReduction::owned(table, bucket, 3, world.rank());
      for (std::int64_t i = own.begin; i < own.end; ++i) {
        EXPECT_EQ(parameters.bucket_gradients(bucket).as<double>()[i], 6.0);
      }
    }
  });
}

TEST(GradientReduction, GathersTheOwnersWeights) {
  const ParameterTable table = make_table();
  for (const int ranks : {1, 2, 5}) {
    testing::run_ranks({.ranks = ranks}, [&](Communicator& world) {
      ThreadPool pool(1);
      Stream stream(pool);
      Allocator allocator(Device::cpu());
      const Parameters parameters(allocator, table, DType::float32, true);
      GradientReduction reduction(allocator, &world, ranks, parameters, stream);
      float* weights = parameters.all_weights().as<float>();
      std::fill(weights, weights + table.flat_size(), -1.0F);
      for (int bucket = 0; bucket < table.buckets(); ++bucket) {
        const std::int64_t begin = table.bucket_begin(bucket);
        const Slice own = GradientReduction::owned(table, bucket, ranks, world.rank());
        for (std::int64_t i = begin + own.begin; i < begin + own.end; ++i) weights[i] = static_cast<float>(i);
      }
      reduction.gather_weights();
      for (std::int64_t i = 0; i < table.flat_size(); ++i) ASSERT_EQ(weights[i], static_cast<float>(i));
    });
  }
}

TEST(GradientReduction, PlansWhatItAllocates) {
  const ParameterTable table = make_table();
  std::size_t largest = 0;  // elements
  for (int bucket = 0; bucket < table.buckets(); ++bucket) {
    largest = std::max(largest, static_cast<std::size_t>(table.bucket_end(bucket) - table.bucket_begin(bucket)));
  }
  ThreadPool pool(1);
  Stream stream(pool);
  for (const int ranks : {1, 2, 4}) {
    Allocator plan(Device::cpu(), Allocator::Mode::plan);
    const Parameters parameters(plan, table, DType::float32, true);
    const GradientReduction planned(plan, nullptr, ranks, parameters, stream);
    const std::size_t part = (largest + static_cast<std::size_t>(ranks) - 1) / static_cast<std::size_t>(ranks);
    const std::size_t staging = static_cast<std::size_t>(ranks - 1) * part * sizeof(float);
    EXPECT_EQ(plan.current()[Tag::workspace], 2 * ((staging + 63) / 64 * 64));
    testing::run_ranks({.ranks = ranks}, [&](Communicator& world) {
      ThreadPool own_pool(1);
      Stream own_stream(own_pool);
      Allocator real(Device::cpu());
      const Parameters own(real, table, DType::float32, true);
      const GradientReduction reduction(real, &world, ranks, own, own_stream);
      EXPECT_EQ(real.current()[Tag::workspace], plan.current()[Tag::workspace]);
    });
  }
}

TEST(GradientReductionFailure, AnErrorWithBucketsUnderWayEndsAllRanks) {
  const ParameterTable table = make_table();
  try {
    launch_threads({.ranks = 3, .timeout_seconds = 120}, [&](Communicator& world) {
      ThreadPool pool(1);
      Stream stream(pool);
      Allocator allocator(Device::cpu());
      const Parameters parameters(allocator, table, DType::float64, true);
      GradientReduction reduction(allocator, &world, 3, parameters, stream);
      for (int bucket = table.buckets() - 1; bucket >= 0; --bucket) {
        const TensorView own = parameters.bucket_gradients(bucket);
        std::fill(own.as<double>(), own.as<double>() + own.numel(), 1.0);
        reduction.bucket_complete(bucket);
        if (world.rank() == 1 && bucket == 3) fail(ExitCode::numeric, "rank 1 sees NaN");
      }
      reduction.finish();
    });
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::numeric);
    EXPECT_STREQ(error.what(), "rank 1 sees NaN");
  }
}

}  // namespace
}  // namespace ringtrain
