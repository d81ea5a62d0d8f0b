// The parameter store on the buckets of a table, for every sharding: exact sums in rank order on every owner, the same
// bits for any timing, weights that reach every rank and remain until they change, memory as planned.
#include "parallel/parameter_store.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <string>

#include "parallel/launch/launch.h"
#include "parallel/store_context.h"
#include "tests/parallel/run_ranks.h"
#include "tests/parallel/watched_communicator.h"
#include "tests/support/error_of.h"

namespace ringtrain {
namespace {

/// Buckets of uneven sizes, most parameters padded. frozen: some of buckets 1 and 3.
ParameterTable make_table(bool frozen = false, bool ends_together = false) {
  ParameterTable table;
  const auto add = [&](const char* name, const Shape& shape, int bucket, bool freezes = false) {
    table.add(
        {.name = name, .shape = shape, .bucket = bucket, .part = frozen && freezes ? Part::frozen : Part::trainable});
  };
  add("embedding", {57, 8}, 0);
  add("a", {33}, 1);
  add("b", {9, 5}, 1, true);
  add("b2", {4, 5}, 1);
  add("c", {1}, 2);
  add("d", {100, 7}, 3, true);
  add("e", {13}, 4);
  add("head", {3, 3}, 5);
  table.ends_together = ends_together;
  return table;
}

float weight_of(int id, std::int64_t i) {
  return static_cast<float>(1000 * (id + 1)) + static_cast<float>(i);
}

double gradient_of(int rank, int id, std::int64_t i, int step, int micro = 0) {
  std::mt19937 random(static_cast<unsigned>(rank + 100 * i + 100000 * id + 10000000 * (step + 10 * micro)));
  return std::ldexp(static_cast<double>(random() % 2001) / 1000 - 1, static_cast<int>(random() % 16));
}

/// A rank with its store.
struct Rank {
  Rank(Communicator& world, const ParameterTable& parameter_table, Shard shard, bool gradients = true,
       bool narrow = false)
      : table(parameter_table),
        rank(world.rank()),
        store(allocator, table, stream,
              {.gradients = gradients,
               .shard = shard,
               .ranks = world.size(),
               .rank = world.rank(),
               .narrow_gradients = narrow},
              &world) {}

  /// Sets the weights of this rank.
  void set_weights(float change = 0) {
    store.clear_weights();
    for (const ParameterSlice& slice : store.held()) {
      auto* const to = store.weights(slice).as<float>();
      for (std::int64_t i = 0; i < slice.count(); ++i) to[i] = weight_of(slice.parameter, slice.begin + i) + change;
    }
  }
  /// Writes a bucket's gradients as backward does. Memory that a first write may not read contains NaN before.
  void write_gradients(int bucket, int step, int micro = 0) {
    for (int id = 0; id < static_cast<int>(table.all().size()); ++id) {
      if (table[id].bucket != bucket || !store.trains(id)) continue;
      const bool adds = store.begin_gradient(id);
      const TensorView gradient = store.gradient(id);
      for (std::int64_t i = 0; i < gradient.numel(); ++i) {
        const auto value = static_cast<float>(gradient_of(rank, id, i, step, micro));
        gradient.as<float>()[i] = adds ? gradient.as<float>()[i] + value : value;
      }
    }
  }
  void backward(int step, int micro, bool last) {
    store.begin_backward(last);
    for (int bucket = table.buckets() - 1; bucket >= 0; --bucket) {
      write_gradients(bucket, step, micro);
      store.finish(bucket);
    }
  }

  const ParameterTable& table;
  const int rank;
  ThreadPool pool{1};
  Stream stream{pool};
  Allocator allocator{Device::cpu()};
  ParameterStore store;
};

/// Runs steps of micro-batches; returns the summed gradients of all ranks' slices after the last step.
std::vector<std::vector<float>> reduce(const ParameterTable& table, Shard shard, int ranks, int steps, int micros,
                                       unsigned jitter_seed, bool narrow = false) {
  std::vector<std::vector<float>> results(ranks);
  testing::run_ranks({.ranks = ranks}, [&](Communicator& world) {
    testing::Traffic traffic;
    testing::WatchedCommunicator watched(borrowed(world), traffic, jitter_seed);
    Rank rank(watched, table, shard, /*gradients=*/true, narrow);
    const std::int64_t allocations = rank.allocator.allocation_count();
    for (int step = 0; step < steps; ++step) {
      rank.store.begin_step();
      for (int micro = 0; micro < micros; ++micro) rank.backward(step, micro, micro + 1 == micros);
      rank.store.finish_step();
    }
    EXPECT_EQ(rank.allocator.allocation_count(), allocations);
    for (const ParameterSlice& slice : rank.store.slices()) {
      const TensorView sums = rank.store.gradients(slice);
      for (std::int64_t i = 0; i < sums.numel(); ++i) {
        results[world.rank()].push_back(narrow ? sums.as<BFloat16>()[i].value() : sums.as<float>()[i]);
      }
    }
  });
  testing::share_rows(results);
  return results;
}

/// Returns the bytes in the plan of a rank by tag.
MemoryUse planned(const ParameterTable& table, Shard shard, int ranks, int rank, bool gradients = true) {
  ThreadPool pool(1);
  Stream stream(pool);
  Allocator plan(Device::cpu(), Allocator::Mode::plan);
  const ParameterStore store(plan, table, stream, {DType::float32, gradients, shard, ranks, rank});
  EXPECT_EQ(store.has_gradients(), gradients);
  return plan.current();
}

class ParameterStoreTest : public ::testing::TestWithParam<Shard> {};

TEST_P(ParameterStoreTest, OwnersHoldSumsInRankOrder) {
  for (const bool frozen : {false, true}) {
    const ParameterTable table = make_table(frozen, /*ends_together=*/frozen);
    for (const int ranks : {1, 2, 3, 4, 6}) {
      const auto results = reduce(table, GetParam(), ranks, 3, 1, 0);
      for (int rank = 0; rank < ranks; ++rank) {
        std::size_t at = 0;
        for (const ParameterSlice& slice : owned_slices(table, Part::trainable, ranks, rank)) {
          for (std::int64_t i = slice.begin; i < slice.end; ++i) {
            auto sum = static_cast<float>(gradient_of(0, slice.parameter, i, 2));
            for (int other = 1; other < ranks; ++other) {
              sum += static_cast<float>(gradient_of(other, slice.parameter, i, 2));
            }
            ASSERT_EQ(results[rank][at++], sum)
                << "ranks " << ranks << ", rank " << rank << ", element " << i << " of " << table[slice.parameter].name;
          }
        }
        ASSERT_EQ(at, results[rank].size());
      }
    }
  }
}

TEST_P(ParameterStoreTest, MicroBatchesAdd) {
  const ParameterTable table = make_table();
  const auto results = reduce(table, GetParam(), 3, 2, 3, 0);
  for (int rank = 0; rank < 3; ++rank) {
    std::size_t at = 0;
    for (const ParameterSlice& slice : owned_slices(table, Part::trainable, 3, rank)) {
      for (std::int64_t i = slice.begin; i < slice.end; ++i) {
        double sum = 0, size = 0;
        for (int other = 0; other < 3; ++other) {
          for (int micro = 0; micro < 3; ++micro) {
            sum += gradient_of(other, slice.parameter, i, 1, micro);
            size += std::abs(gradient_of(other, slice.parameter, i, 1, micro));
          }
        }
        ASSERT_NEAR(results[rank][at++], sum, 9 * 6e-8 * size);
      }
    }
  }
}

TEST_P(ParameterStoreTest, NarrowSumsAreRoundedToNearestAfterEachMicroBatch) {
  const ParameterTable table = make_table();
  for (const int ranks : {1, 3}) {
    const auto results = reduce(table, GetParam(), ranks, 2, 3, 0, /*narrow=*/true);
    for (int rank = 0; rank < ranks; ++rank) {
      std::size_t at = 0;
      for (const ParameterSlice& slice : owned_slices(table, Part::trainable, ranks, rank)) {
        for (std::int64_t i = slice.begin; i < slice.end; ++i) {
          BFloat16 sum;
          for (int micro = 0; micro < 3; ++micro) {
            float of_ranks = 0;
            for (int other = 0; other < ranks; ++other) {
              of_ranks += static_cast<float>(gradient_of(other, slice.parameter, i, 1, micro));
            }
            sum = BFloat16::rounded(sum.value() + of_ranks);
          }
          ASSERT_EQ(results[rank][at++], sum.value()) << ranks << " " << table[slice.parameter].name << " " << i;
        }
      }
    }
  }
}

TEST_P(ParameterStoreTest, TimingChangesNothing) {
  const ParameterTable table = make_table();
  const auto calm = reduce(table, GetParam(), 4, 2, 2, 0);
  for (unsigned seed = 1; seed <= 5; ++seed) {
    EXPECT_EQ(reduce(table, GetParam(), 4, 2, 2, seed), calm) << "seed " << seed;
  }
}

TEST_P(ParameterStoreTest, IssuesTwoBucketsBeforeItWaitsForAny) {
  // Rank 0 lets the others begin only after it has issued two buckets: it must not wait for them before that.
  const ParameterTable table = make_table();
  testing::run_ranks({.ranks = 3, .timeout_seconds = 20}, [&](Communicator& world) {
    Rank rank(world, table, GetParam());
    rank.store.begin_step();
    if (world.rank() != 0) world.barrier({});
    for (int bucket = table.buckets() - 1; bucket >= 0; --bucket) {
      if (world.rank() == 0 && bucket == table.buckets() - 3) world.barrier({});
      rank.write_gradients(bucket, 0);
      rank.store.finish(bucket);
    }
    rank.store.finish_step();
  });
}

TEST_P(ParameterStoreTest, WhatNoLayerWroteIsZero) {
  const ParameterTable table = make_table();
  testing::run_ranks({.ranks = 2}, [&](Communicator& world) {
    Rank rank(world, table, GetParam());
    for (int step = 0; step < 2; ++step) {
      rank.store.begin_step();
      if (step == 0) {
        rank.backward(step, 0, true);
      } else {
        for (int bucket = table.buckets() - 1; bucket >= 0; --bucket) rank.store.finish(bucket);
      }
      rank.store.finish_step();
    }
    for (const ParameterSlice& slice : rank.store.slices()) {
      const TensorView sums = rank.store.gradients(slice);
      for (std::int64_t i = 0; i < sums.numel(); ++i) ASSERT_EQ(sums.as<float>()[i], 0.0F);
    }
  });
}

TEST_P(ParameterStoreTest, PaddingIsZeroWhereAnotherBucketWasBefore) {
  const ParameterTable table = make_table();
  testing::run_ranks({.ranks = 2}, [&](Communicator& world) {
    Rank rank(world, table, GetParam());
    for (int step = 0; step < 2; ++step) {
      rank.store.begin_step();
      rank.backward(step, 0, true);
      rank.store.finish_step();
      const std::vector<ParameterSlice>& slices = rank.store.slices();
      std::int64_t padding = 0;
      for (std::size_t next = 1; next < slices.size(); ++next) {
        if (!rank.store.follows(slices[next], slices[next - 1])) continue;
        const TensorView both = rank.store.gradients(slices[next - 1], slices[next]);
        for (std::int64_t i = slices[next - 1].count(); i < both.numel() - slices[next].count(); ++i, ++padding) {
          ASSERT_EQ(both.as<float>()[i], 0.0F) << "behind " << table[slices[next - 1].parameter].name;
        }
      }
      EXPECT_GT(padding, 0);
    }
  });
}

/// Expects that every weight of a rank is weight_of + change, bucket by bucket.
void expect_weights(Rank& rank, float change) {
  for (int bucket = 0; bucket < rank.table.buckets(); ++bucket) {
    if (bucket + 1 < rank.table.buckets() && bucket > 0) rank.store.prefetch(bucket + 1);
    const WeightsGuard guard(rank.store, bucket);
    for (int id = 0; id < static_cast<int>(rank.table.all().size()); ++id) {
      if (rank.table[id].bucket != bucket) continue;
      const TensorView weight = rank.store.weight(id);
      ASSERT_EQ(weight.shape, rank.table[id].shape);
      for (std::int64_t i = 0; i < weight.numel(); ++i) {
        const bool changes = rank.store.trains(id);
        ASSERT_EQ(weight.as<float>()[i], weight_of(id, i) + (changes ? change : 0)) << rank.table[id].name;
      }
    }
  }
}

TEST_P(ParameterStoreTest, AllRanksHaveTheOwnersWeights) {
  for (const bool frozen : {false, true}) {
    const ParameterTable table = make_table(frozen, /*ends_together=*/frozen);
    for (const int ranks : {1, 2, 5}) {
      testing::run_ranks({.ranks = ranks}, [&](Communicator& world) {
        Rank rank(world, table, GetParam());
        rank.set_weights();
        expect_weights(rank, 0);
        for (const ParameterSlice& slice : rank.store.slices()) {  // an update: only of its own slices
          auto* const to = rank.store.weights(slice).as<float>();
          for (std::int64_t i = 0; i < slice.count(); ++i) to[i] += 0.5F;
        }
        rank.store.weights_changed();
        expect_weights(rank, 0.5F);
      });
    }
  }
}

TEST_P(ParameterStoreTest, PlansWhatItAllocates) {
  for (const bool together : {false, true}) {
    const ParameterTable table = make_table(/*frozen=*/true, together);
    for (const int ranks : {1, 2, 4}) {
      testing::run_ranks({.ranks = ranks}, [&](Communicator& world) {
        const Rank rank(world, table, GetParam());
        const MemoryUse plan = planned(table, GetParam(), ranks, world.rank());
        for (const Tag tag : {Tag::weights, Tag::gradients, Tag::workspace}) {
          EXPECT_EQ(rank.allocator.current()[tag], plan[tag]);
        }
      });
    }
  }
}

TEST_P(ParameterStoreTest, WithoutGradientsThereIsNoMemoryForThem) {
  const MemoryUse plan = planned(make_table(), GetParam(), 4, 1, /*gradients=*/false);
  EXPECT_EQ(plan[Tag::gradients], 0u);
  EXPECT_EQ(plan[Tag::workspace], 0u);
}

TEST_P(ParameterStoreTest, AnErrorWithBucketsUnderWayEndsAllRanks) {
  const ParameterTable table = make_table();
  testing::expect_error(ExitCode::numeric, "rank 1 sees NaN", [&] {
    launch_threads({.ranks = 3, .timeout_seconds = 120}, [&](Communicator& world) {
      Rank rank(world, table, GetParam());
      rank.set_weights();
      rank.store.begin_step();
      for (int bucket = table.buckets() - 1; bucket >= 0; --bucket) {
        rank.store.prefetch(bucket);
        rank.write_gradients(bucket, 0);
        rank.store.finish(bucket);
        if (world.rank() == 1 && bucket == 3) fail(ExitCode::numeric, "rank 1 sees NaN");
      }
      rank.store.finish_step();
    });
  });
}

INSTANTIATE_TEST_SUITE_P(Policies, ParameterStoreTest, ::testing::ValuesIn(all_shard_policies),
                         [](const auto& test) { return std::string(name_of(test.param)); });

/// Expects an Error(usage) that contains this text from one rank's use of a store.
void expect_refusal(const std::string& part, Shard shard, const std::function<void(Rank&)>& use) {
  const ParameterTable table = make_table(/*frozen=*/true);
  testing::run_ranks({.ranks = 1}, [&](Communicator& world) {
    Rank rank(world, table, shard);
    rank.store.begin_step();
    rank.store.begin_backward(/*last=*/true);
    testing::expect_error(ExitCode::usage, part, [&] { use(rank); });
  });
}

TEST(ParameterStoreMisuse, BucketsOutOfTheirOrderAreNamed) {
  for (const Shard shard : all_shard_policies) {
    expect_refusal("bucket 1 is finished where bucket 5 comes next", shard, [](Rank& rank) { rank.store.finish(1); });
    expect_refusal("bucket 5 is finished where bucket 4 comes next", shard, [](Rank& rank) {
      rank.store.finish(5);
      rank.store.finish(5);
    });
    expect_refusal("bucket 0 is finished after all were", shard, [](Rank& rank) {
      rank.backward(0, 0, true);
      rank.store.finish(0);
    });
    expect_refusal("there are 5 buckets with something to train, but 2 were finished", shard, [](Rank& rank) {
      rank.store.finish(5);
      rank.store.finish(4);
      rank.store.finish_step();
    });
  }
}

TEST(ParameterStoreMisuse, GradientsThatWouldBeLostAreNamed) {
  for (const Shard shard : all_shard_policies) {
    expect_refusal("the gradient of head is written after its bucket 5 was finished", shard, [](Rank& rank) {
      rank.store.finish(5);
      rank.store.begin_gradient(7);
    });
    expect_refusal("backward wrote no gradient of head", shard,
                   [](Rank& rank) { rank.store.finish(5, /*all_written=*/true); });
    expect_refusal("begin_gradient: b is frozen", shard, [](Rank& rank) { rank.store.begin_gradient(2); });
  }
}

TEST(ParameterStoreMisuse, WeightsThatAreNotThereAreNamed) {
  const ParameterTable table = make_table();
  testing::expect_error(ExitCode::usage, "head is read while its bucket 5 is not acquired", [&] {
    launch_threads({.ranks = 2, .timeout_seconds = 60}, [&](Communicator& world) {
      Rank rank(world, table, Shard::weights);
      rank.store.weight(7);
    });
  });
}

TEST(ParameterStoreMisuse, IdsAndWhatTheStoreWasMadeWithoutAreNamed) {
  for (const Shard shard : all_shard_policies) {
    const auto refused = [&](const char* part, void (*use)(ParameterStore&)) {
      expect_refusal(part, shard, [&](Rank& rank) { use(rank.store); });
    };
    refused("weight: no parameter 8; the table has 8, numbered from 0", [](auto& store) { store.weight(8); });
    refused("begin_gradient: no parameter -1; the table", [](auto& store) { store.begin_gradient(-1); });
    refused("gradient: b is frozen", [](auto& store) { store.gradient(2); });
    refused("prefetch: no bucket 6; the model has 6, numbered from 0", [](auto& store) { store.acquire(6); });
    refused("release: no bucket -1; the model has 6, numbered from 0", [](auto& store) { store.release(-1); });
    refused("finish: no bucket 6; the model has 6, numbered from 0", [](auto& store) { store.finish(6); });
  }
  const ParameterTable table = make_table();
  testing::run_ranks({.ranks = 1}, [&](Communicator& world) {
    Rank rank(world, table, Shard::optimizer, /*gradients=*/false);
    testing::expect_error(ExitCode::usage,
                          "embedding has no gradient, because the store was made without StoreOptions::gradients",
                          [&] { rank.store.begin_gradient(0); });
  });
}

TEST(ParameterStoreMisuse, RanksThatAreNotThoseOfTheCommunicatorAreNamed) {
  const ParameterTable table = make_table();
  testing::run_ranks({.ranks = 1}, [&](Communicator& world) {
    ThreadPool pool(1);
    Stream stream(pool);
    Allocator allocator(Device::cpu());
    const auto sentence = [&](const StoreOptions& options, Communicator* ranks) {
      return testing::error_of(ExitCode::usage, [&] {
        ParameterStore store(allocator, table, stream, options, ranks);
        store.weights_changed();
      });
    };
    EXPECT_EQ(sentence({.ranks = 3, .rank = 0}, &world),
              "ParameterStore: StoreOptions has 3 ranks, but the communicator has 1");
    EXPECT_EQ(sentence({.ranks = 3, .rank = 3}, nullptr),
              "ParameterStore: StoreOptions has rank 3 of 3 ranks, but ranks count from 0");
    EXPECT_NE(
        sentence({.ranks = 3, .rank = 0}, nullptr).find("weights_changed: the store of 3 ranks has no communicator"),
        std::string::npos);
  });
}

TEST(ParameterStoreMisuse, ATableGrowsBucketByBucket) {
  ParameterTable table;
  table.add({.name = "late", .shape = {3}, .bucket = 2});
  testing::expect_refused(
      "early is added to bucket 1, but the parameter before it is in bucket 2: the bucket numbers must not decrease",
      [&] { table.add({.name = "early", .shape = {3}, .bucket = 1}); });
}

TEST(ParameterStoreMemory, IsTheNthPartAndPlacesForThreeBuckets) {
  ParameterTable table;                                  // multiples of 64 bytes and of all these numbers of ranks
  constexpr std::size_t layer = 24 * 16, end = 24 * 64;  // elements
  table.add({.name = "embedding", .shape = {end}, .bucket = 0});
  for (int bucket = 1; bucket <= 4; ++bucket) table.add({.name = "layer", .shape = {layer}, .bucket = bucket});
  table.add({.name = "head", .shape = {end}, .bucket = 5});
  constexpr std::size_t all = 4 * (4 * layer + 2 * end), places = 4 * (end + 2 * layer);  // bytes
  for (const int ranks : {2, 3, 4, 8}) {
    const auto n = static_cast<std::size_t>(ranks);
    const MemoryUse none = planned(table, Shard::optimizer, ranks, 0);
    EXPECT_EQ(none[Tag::weights], all);
    EXPECT_EQ(none[Tag::gradients], all);
    const MemoryUse gradients = planned(table, Shard::gradients, ranks, 0);
    EXPECT_EQ(gradients[Tag::weights], all);
    EXPECT_EQ(gradients[Tag::gradients], all / n + places);
    const MemoryUse weights = planned(table, Shard::weights, ranks, 0);
    EXPECT_EQ(weights[Tag::weights], all / n + places);
    EXPECT_EQ(weights[Tag::gradients], all / n + places);
    const std::size_t staging = 4 * (n - 1) * (end / n + layer / n);
    for (const MemoryUse& use : {none, gradients, weights}) EXPECT_EQ(use[Tag::workspace], staging);
  }
}

/// Runs body(rank, messages) on two ranks, where messages(action) is the number of messages that an action sends.
template <class Body>
void count_messages(const ParameterTable& table, Shard shard, bool gradients, const Body& body) {
  testing::run_ranks({.ranks = 2}, [&](Communicator& world) {
    testing::Traffic traffic;
    testing::WatchedCommunicator watched(borrowed(world), traffic);
    Rank rank(watched, table, shard, gradients);
    rank.set_weights();
    body(rank, [&](const std::function<void()>& act) {
      const int before = traffic.messages;
      act();
      return traffic.messages - before;
    });
  });
}

TEST(WholeWeights, AreGatheredOnceWhenALayerNeedsThem) {
  const ParameterTable table = make_table();
  count_messages(table, Shard::optimizer, /*gradients=*/true, [&](Rank& rank, const auto& messages) {
    const auto use = [&](int bucket) { const WeightsGuard guard(rank.store, bucket); };
    EXPECT_EQ(messages([&] { use(1); }), 0);  // each rank already has all of them
    EXPECT_EQ(messages([&] { rank.store.weights_changed(); }), 0);
    EXPECT_THROW(rank.store.weight(1), Error);
    EXPECT_EQ(messages([&] { rank.store.prefetch(1); }), 1);
    EXPECT_THROW(rank.store.weight(1), Error);  // it is in transit
    EXPECT_EQ(messages([&] { use(1); }), 0);
    rank.store.weight(1);
    EXPECT_EQ(messages([&] { rank.store.prefetch(1); }), 0);
    EXPECT_EQ(messages([&] { use(2); }), 1);
    EXPECT_EQ(messages([&] { rank.store.gather_changed(); }), table.buckets() - 2);
    rank.store.prefetch(1);
    rank.store.weights_changed();
    EXPECT_EQ(messages([&] { use(1); }), 1);
    rank.store.weights_changed();
    rank.store.prefetch(1);
    EXPECT_EQ(messages([&] { rank.store.weights_changed(); }), 0);  // and the unused gather has ended
    EXPECT_EQ(messages([&] { rank.store.gather_changed(); }), table.buckets());
  });
}

TEST(ShardedWeights, StayUntilTheyChangeOrTheirPlaceIsNeeded) {
  const ParameterTable table = make_table();
  count_messages(table, Shard::weights, /*gradients=*/false, [&](Rank& rank, const auto& messages) {
    const auto use = [&](int bucket) { const WeightsGuard guard(rank.store, bucket); };
    EXPECT_EQ(messages([&] { use(1); }), 1);
    EXPECT_EQ(messages([&] { use(2); }), 1);
    EXPECT_EQ(messages([&] { rank.store.prefetch(1); }), 0);
    EXPECT_EQ(messages([&] { use(1); }), 0);
    EXPECT_EQ(messages([&] { use(3); }), 1);  // replaces 1
    EXPECT_EQ(messages([&] { rank.store.prefetch(1); }), 1);
    EXPECT_EQ(messages([&] { rank.store.prefetch(1); }), 0);
    EXPECT_EQ(messages([&] { use(1); }), 0);
    rank.store.weights_changed();
    EXPECT_EQ(messages([&] { use(1); }), 1);
  });
}

TEST(ShardedWeights, AreNotTakenFromALayerThatUsesThem) {
  const ParameterTable table = make_table();
  testing::run_ranks({.ranks = 2}, [&](Communicator& world) {
    Rank rank(world, table, Shard::weights, /*gradients=*/false);
    rank.set_weights();
    EXPECT_THROW(rank.store.weight(1), Error);                                        // no one has acquired it
    EXPECT_THROW((void(WeightsGuard(rank.store, 1)), rank.store.release(1)), Error);  // the guard releases it again
    const WeightsGuard guard(rank.store, 1);
    rank.store.weight(1);
    EXPECT_THROW(rank.store.prefetch(3), Error);  // in the same buffer
    EXPECT_THROW(rank.store.weights_changed(), Error);
    EXPECT_THROW(rank.store.release(2), Error);
    world.barrier({});
  });
}

TEST(FrozenParameters, HaveNoGradient) {
  const ParameterTable table = make_table(/*frozen=*/true);
  ThreadPool pool(1);
  Stream stream(pool);
  Allocator allocator(Device::cpu());
  ParameterStore store(allocator, table, stream, {DType::float32, true});
  EXPECT_FALSE(store.trains(2));
  EXPECT_EQ(allocator.current()[Tag::gradients], 4u * static_cast<std::size_t>(table.flat_size()));
  for (const ParameterSlice& slice : store.slices()) EXPECT_TRUE(store.trains(slice.parameter));
}

}  // namespace
}  // namespace ringtrain
