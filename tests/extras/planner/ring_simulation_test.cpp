// extras/planner/ring_simulation.h against passes worked out by hand: ranks of 4 tokens, a second a pair, a byte a
// token and second.
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

struct Result {
  std::vector<double> ends, waits;
};
Result simulate(const RingWork& work, const Hardware& hardware, const PassCosts& costs) {
  std::vector<double> clocks(work.ranks(), 0.0);
  const PassTimes times = RingSimulation(work, hardware, 0).pass(costs, clocks);
  return {clocks, times.wait};
}

using Times = std::vector<double>;

TEST(RingSimulation, ATransferThatComputingHidesCostsNothing) {
  const Result result = simulate(ring(2, full), links(1), forward);
  EXPECT_EQ(result.ends, (Times{32, 32}));  // 16 pairs at hop 0, meanwhile 4 bytes in 4 s; 16 at hop 1
  EXPECT_EQ(result.waits, (Times{0, 0}));
}

TEST(RingSimulation, ASlowTransferIsWaitedFor) {
  const Result result = simulate(ring(2, full), links(0.1), forward);
  EXPECT_EQ(result.ends, (Times{56, 56}));  // 4 bytes in 40 s, then 16
  EXPECT_EQ(result.waits, (Times{24, 24}));
}

TEST(RingSimulation, LatencyDelaysAMessageButKeepsNoLinkBusy) {
  const Result result = simulate(ring(2, full), links(0.25, 3), forward);
  EXPECT_EQ(result.ends, (Times{35, 35}));  // 16 + 3 s until it has come
}

TEST(RingSimulation, ACausalContiguousRingLeavesOutWhatNobodySees) {
  const Result result = simulate(ring(2, causal), links(1), forward);
  EXPECT_EQ(result.ends, (Times{10, 26}));  // 10 pairs of the own triangle; rank 1 also 16 of block 0
}

TEST(RingSimulation, ZigzagIsEven) {
  const Result result = simulate(ring(2, causal, Layout::zigzag), links(1), forward);
  EXPECT_EQ(result.ends, (Times{18, 18}));  // 36 pairs of 8 tokens
}

TEST(RingSimulation, StripedIsNearlyEven) {
  const Result result = simulate(ring(2, causal, Layout::striped), links(1), forward);
  EXPECT_EQ(result.ends, (Times{16, 20}));  // 10 + 6, 10 + 10
}

TEST(RingSimulation, GradientsTravelBehindTheirBlockAndComeHome) {
  // Hop 0 until 16; 8 bytes of gradients until 24; hop 1 until 40; home until 48.
  const Result result = simulate(ring(2, full), links(1), backward);
  EXPECT_EQ(result.ends, (Times{48, 48}));
  EXPECT_EQ(result.waits, (Times{16, 16}));
}

TEST(RingSimulation, AMessageWaitsForTheOneBeforeItOnTheLink) {
  // Keys take the link until 20; gradients, posted at 16, from 20 to 60; hop 1 until 76; home until 116.
  EXPECT_EQ(simulate(ring(2, full), links(0.2), backward).ends, (Times{116, 116}));
}

TEST(RingSimulation, ARankWaitsForTheGradientsThatItContinues) {
  // Ranks 1 and 2 continue a block's gradients from 18 on; rank 2 those of block 0 from 42 to 58; home until 66.
  EXPECT_EQ(simulate(ring(3, causal), links(1), backward).ends, (Times{66, 42, 66}));
}

TEST(RingSimulation, OtherWorkHidesTheGradientsThatComeHome) {
  PassCosts costs = backward;
  costs.overlap_seconds = 3;
  const Result result = simulate(ring(2, full), links(1), costs);
  EXPECT_EQ(result.ends, (Times{48, 48}));
  EXPECT_EQ(result.waits, (Times{13, 13}));
}

TEST(RingSimulation, PartsMoveGradientsWhileOthersAreComputed) {
  // Parts of 2 tokens: 8 s each. Part 0 is sent at 8 and has come at 12, part 1 at 20; both wait for nothing in hop 1:
  // 16 to 24, 24 to 32. Home: part 0 at 28, part 1 from 32 to 36.
  const Result result = simulate(ring(2, full, Layout::contiguous, 2), links(1), backward);
  EXPECT_EQ(result.ends, (Times{36, 36}));
  EXPECT_EQ(result.waits, (Times{4, 4}));
}

TEST(RingSimulation, ASlowerLevelHoldsUpItsNeighbors) {
  Hardware levels;
  levels.levels = {{.ranks = 2, .bandwidth = 1}, {.ranks = 4, .bandwidth = 0.2}};
  const Result four = simulate(ring(4, full), levels, forward);
  // Blocks cross between ranks 1 and 2, and 3 and 0, in 20 s: 16 + 4 of waiting each time a rank is behind one.
  EXPECT_EQ(four.ends[0], four.ends[2]);
  EXPECT_EQ(four.ends[1], four.ends[3]);
  EXPECT_EQ(four.ends[0], 20 + 20 + 20 + 16);
}

TEST(RingSimulation, DocumentsLeaveOutHopsAndPairs) {
  // Documents of 4 tokens, one a rank: nothing is sent.
  RingCase ring_case{.mask = causal, .layout = Layout::contiguous, .length = 12, .ranks = 3, .documents = {0, 4, 8}};
  const Result apart = simulate(RingWork(ring_case), links(1), forward);
  EXPECT_EQ(apart.ends, (Times{10, 10, 10}));
  // One boundary inside rank 1: its second half sees nothing of rank 0, and rank 2 sees that half alone.
  ring_case.documents = {0, 6};
  const RingWork work(ring_case);
  EXPECT_EQ(work.pairs(1, 0), 2 * 4);
  EXPECT_EQ(work.pairs(1, 1), 3 + 3);
  EXPECT_EQ(work.pairs(2, 1), 4 * 2);
  EXPECT_EQ(work.pairs(2, 0), 0);
  EXPECT_EQ(work.all_pairs(), 21 + 21);
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
      EXPECT_EQ(work.all_pairs(), expected);
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
  const std::string sentence =
      error_of(ExitCode::usage, [] { RingWork work({.mask = {}, .length = 1 << 17, .ranks = 1 << 15}); });
  EXPECT_NE(sentence.find("32768 ranks is more than the 1024"), std::string::npos) << sentence;
  error_of(ExitCode::usage, [] { RingWork work({.mask = {}, .length = 8, .ranks = 9}); });  // one would hold no token
}

TEST(RingSimulation, TheLargestRingTakesSeconds) {
  const std::clock_t begin = std::clock();
  const int ranks = RingWork::largest_ring;
  const RingWork work({.mask = causal, .layout = Layout::zigzag, .length = 1 << 16, .ranks = ranks, .min_part = 16});
  const Hardware hardware = links(1e9, 1e-5);
  const RingSimulation simulation(work, hardware, 0);
  std::vector<double> clocks(ranks, 0.0);
  simulation.pass(forward, clocks);
  simulation.pass(backward, clocks);
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
