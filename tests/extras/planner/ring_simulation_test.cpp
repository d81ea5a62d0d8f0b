// extras/planner/ring_simulation.h compared with passes calculated by hand: ranks of 4 tokens, a second per pair, a
// byte per token and second.
#include "extras/planner/ring_simulation.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <ctime>

#include "extras/planner/step_simulation.h"
#include "tests/support/error_of.h"

namespace ringtrain::testing {
namespace {

constexpr AttentionMask full{.causal = false}, causal{.causal = true};

Hardware links(double bandwidth, double latency = 0) {
  Hardware hardware;
  hardware.levels = {{.ranks = 65536, .bandwidth = bandwidth, .latency = latency}};
  return hardware;
}

RingWork ring(int ranks, const AttentionMask& mask, Layout layout = Layout::contiguous, std::int64_t min_part = 1000) {
  return RingWork({.mask = mask, .layout = layout, .length = 4 * ranks, .ranks = ranks, .min_part = min_part});
}

constexpr PassCosts forward{.pair_seconds = 1, .key_value_bytes = 1};
constexpr PassCosts backward{.pair_seconds = 1, .key_value_bytes = 1, .gradient_bytes = 2};

using Times = std::vector<double>;

struct Result {
  Times ends, waits;
};
Result simulate(const RingWork& work, const Hardware& hardware, const PassCosts& costs) {
  Times clocks(static_cast<std::size_t>(work.ranks()), 0.0);
  const PassTimes times = simulate_pass({work, hardware}, costs, clocks);
  return {clocks, times.wait};
}

TEST(RingSimulation, PassesAreThoseWorkedOutByHand) {
  struct Case {
    const char* what;
    RingWork work;
    Hardware hardware;
    PassCosts costs;
    Times ends, waits;
  };
  PassCosts overlapped = backward;
  overlapped.overlap_seconds = 3;
  for (const auto& [what, work, hardware, costs, ends, waits] :
       {// 16 pairs at hop 0, meanwhile 4 bytes in 4 s; 16 at hop 1.
        Case{"a hidden transfer costs nothing", ring(2, full), links(1), forward, {32, 32}, {0, 0}},
        // 4 bytes in 40 s, then 16.
        {"a slow one is waited for", ring(2, full), links(0.1), forward, {56, 56}, {24, 24}},
        // 16 + 3 s until it has arrived.
        {"latency keeps no link busy", ring(2, full), links(0.25, 3), forward, {35, 35}, {3, 3}},
        // 10 pairs of its own triangle; rank 1 also has 16 of block 0.
        {"no rank computes what it does not see", ring(2, causal), links(1), forward, {10, 26}, {0, 0}},
        // 36 pairs of 8 tokens.
        {"zigzag is even", ring(2, causal, Layout::zigzag), links(1), forward, {18, 18}, {0, 0}},
        // 10 + 6, 10 + 10.
        {"striped is nearly even", ring(2, causal, Layout::striped), links(1), forward, {16, 20}, {0, 0}},
        // Hop 0 until 16; 8 bytes of gradients until 24; hop 1 until 40; returned at 48.
        {"gradients travel behind their block", ring(2, full), links(1), backward, {48, 48}, {16, 16}},
        // Keys use the link until 20; gradients, posted at 16, from 20 to 60; hop 1 until 76; returned at 116.
        {"a message waits for the one before it", ring(2, full), links(0.2), backward, {116, 116}, {84, 84}},
        // Ranks 1 and 2 continue a block's gradients from 18; rank 2 those of block 0 from 42 to 58; returned at 66.
        {"a rank waits for gradients that it continues", ring(3, causal), links(1), backward, {66, 42, 66}, {}},
        {"other work hides gradients that come home", ring(2, full), links(1), overlapped, {48, 48}, {13, 13}},
        // Parts of 2 tokens: 8 s each. Part 0 is sent at 8 and arrives at 12, part 1 at 20; both wait for nothing in
        // hop 1: 16 to 24, 24 to 32. Returns: part 0 at 28, part 1 from 32 to 36.
        {"parts move while others are computed",
         ring(2, full, Layout::contiguous, 2),
         links(1),
         backward,
         {36, 36},
         {4, 4}}}) {
    const Result result = simulate(work, hardware, costs);
    EXPECT_EQ(result.ends, ends) << what;
    if (!waits.empty()) {
      EXPECT_EQ(result.waits, waits) << what;
    }
  }
}

TEST(RingSimulation, ASlowerLevelHoldsUpItsNeighbors) {
  Hardware levels;
  levels.levels = {{.ranks = 2, .bandwidth = 1}, {.ranks = 4, .bandwidth = 0.2}};
  const Result four = simulate(ring(4, full), levels, forward);
  // Blocks cross between ranks 1 and 2, and 3 and 0, in 20 s: 16 + 4 of waiting each time a rank is after one.
  EXPECT_EQ(four.ends[0], four.ends[2]);
  EXPECT_EQ(four.ends[1], four.ends[3]);
  EXPECT_EQ(four.ends[0], 20 + 20 + 20 + 16);
}

TEST(RingSimulation, DocumentsLeaveOutHopsAndPairs) {
  // Documents of 4 tokens, one per rank: nothing is sent.
  RingCase ring_case{.mask = causal, .layout = Layout::contiguous, .length = 12, .ranks = 3, .documents = {0, 4, 8}};
  const Result apart = simulate(RingWork(ring_case), links(1), forward);
  EXPECT_EQ(apart.ends, (Times{10, 10, 10}));
  // One boundary inside rank 1: its second half sees nothing of rank 0, and rank 2 sees only that half.
  ring_case.documents = {0, 6};
  const RingWork work(ring_case);
  EXPECT_EQ(work.pairs(1, 0), 2 * 4);
  EXPECT_EQ(work.pairs(1, 1), 3 + 3);
  EXPECT_EQ(work.pairs(2, 1), 4 * 2);
  EXPECT_EQ(work.pairs(2, 0), 0);
}

TEST(RingWorkOfDocuments, HasEveryPairOnce) {
  for (const Layout layout : all_layouts) {
    for (const double mean : {3.0, 20.0, 300.0}) {
      const std::int64_t length = 203;
      const DocumentStarts documents = sample_documents(length, mean, 5);
      std::int64_t expected = 0;
      for (std::int64_t query = 0; query < length; ++query) {
        for (std::int64_t key = 0; key <= query; ++key) {
          bool together = true;
          for (const std::int64_t start : documents) together = together && !(key < start && start <= query);
          expected += together ? 1 : 0;
        }
      }
      const RingWork work({.mask = causal,
                           .layout = layout,
                           .length = length,
                           .ranks = 5,
                           .sequences = 1,
                           .documents = documents,
                           .min_part = 8});
      std::int64_t pairs = 0, by_part = 0;
      for (int rank = 0; rank < 5; ++rank) {
        for (int owner = 0; owner < 5; ++owner) {
          pairs += work.pairs(rank, owner);
          for (int part = 0; part < work.parts(); ++part) by_part += work.pairs(rank, owner, part);
        }
      }
      EXPECT_EQ(pairs, expected) << name_of(layout) << " " << mean;
      EXPECT_EQ(by_part, expected);
    }
  }
}

TEST(RingWorkOfWholeSequences, PairsAreThoseOfTheLayout) {
  for (const Layout layout : all_layouts) {
    for (const auto& [ranks, length] : {std::pair{1, 9}, {2, 8}, {3, 21}, {6, 96}, {6, 97}, {6, 90}, {7, 60}}) {
      const RingWork work({.mask = causal, .layout = layout, .length = length, .ranks = ranks, .min_part = 4});
      std::int64_t pairs = 0, by_part = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        const SegmentList queries = shard_segments(layout, length, ranks, rank);
        for (int owner = 0; owner < ranks; ++owner) {
          const std::int64_t visible = visible_pairs(causal, queries, shard_segments(layout, length, ranks, owner));
          EXPECT_EQ(work.pairs(rank, owner), visible) << name_of(layout) << " " << ranks << " " << length;
          pairs += visible;
          for (int part = 0; part < work.parts(); ++part) by_part += work.pairs(rank, owner, part);
        }
      }
      EXPECT_EQ(pairs, length * (length + 1) / 2);
      EXPECT_EQ(by_part, pairs);
    }
  }
}

TEST(RingWork, ARingTooLongToSimulateIsRefused) {
  expect_error(ExitCode::usage, "is too long: a plan simulates at most 1024 ranks",
               [] { RingWork work({.mask = {}, .length = 1 << 17, .ranks = 1 << 15}); });
  error_of(ExitCode::usage, [] { RingWork work({.mask = {}, .length = 8, .ranks = 9}); });  // one would have no token
}

TEST(RingSimulation, TheLargestRingTakesSeconds) {
  const std::clock_t begin = std::clock();
  const int ranks = RingWork::largest_ring;
  const RingWork work({.mask = causal, .layout = Layout::zigzag, .length = 1 << 16, .ranks = ranks, .min_part = 16});
  const Hardware hardware = links(1e9, 1e-5);
  std::vector<double> clocks(ranks, 0.0);
  simulate_pass({work, hardware}, forward, clocks);
  simulate_pass({work, hardware}, backward, clocks);
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  std::printf("%.2f s of a core\n", seconds);
#if defined(NDEBUG) && !defined(RINGTRAIN_SANITIZED)
  EXPECT_LT(seconds, 4);
#endif
}

TEST(ExchangeSeconds, EachRankSendsItsShareOverEveryLevel) {
  EXPECT_DOUBLE_EQ(exchange_seconds(links(2, 1), 4, 8), 1 + 3.0 / 4 * 8 / 2);
  EXPECT_EQ(exchange_seconds(links(2, 1), 1, 8), 0);
  Hardware levels;
  levels.levels = {{.ranks = 2, .bandwidth = 4}, {.ranks = 8, .bandwidth = 1}};
  EXPECT_DOUBLE_EQ(exchange_seconds(levels, 8, 16), 1.0 / 8 * 16 / 4 + 6.0 / 8 * 16 / 1);
}

}  // namespace
}  // namespace ringtrain::testing
