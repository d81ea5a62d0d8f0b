// train/planning/even_ring.h against RingSimulation's general pass, which a ring with a list of documents takes, be it
// of one: the same clocks and events for every layout, uneven links, stragglers and rings longer than a tile.
#include "train/planning/even_ring.h"

#include <gtest/gtest.h>

#include "framework/random.h"
#include "tests/support/error_of.h"
#include "train/planning/ring_simulation.h"

namespace ringtrain::testing {
namespace {

struct Outcome {
  std::vector<double> clocks;
  PassTimes times;
};

/// Hardware whose links differ: within pairs, within eights, and beyond.
Hardware uneven_links() {
  Hardware hardware;
  hardware.levels = {{.ranks = 2, .bandwidth = 7e4, .latency = 1e-5},
                     {.ranks = 8, .bandwidth = 2e4, .latency = 3e-4},
                     {.ranks = 65536, .bandwidth = 6e3, .latency = 2e-3}};
  return hardware;
}

RingCase ring_case(int ranks, Layout layout, bool causal, std::int64_t min_part) {
  return {.mask = {.causal = causal},
          .layout = layout,
          .length = 64 * std::int64_t{ranks},
          .ranks = ranks,
          .sequences = min_part > 64 ? 2 : 1,
          .min_part = min_part};
}

Outcome simulate(const RingCase& ring, const PassCosts& costs, const Disturbance& disturbance) {
  const RingWork work(ring);
  const Hardware hardware = uneven_links();
  Outcome outcome;
  for (int rank = 0; rank < ring.ranks; ++rank) {
    outcome.clocks.push_back(1 + 1e-3 * random_uniform(3, Purpose::simulation, static_cast<std::uint64_t>(rank)));
  }
  outcome.times = RingSimulation(work, hardware, 0, disturbance).pass(costs, outcome.clocks, 0);
  return outcome;
}

void expect_equal_passes(int ranks, Layout layout, bool causal, std::int64_t min_part, double overlap = 2e-3) {
  SCOPED_TRACE(
      fmt::format("{} ranks, {}, {}, parts of {}", ranks, name_of(layout), causal ? "causal" : "full", min_part));
  const Disturbance disturbed{
      .stragglers = {{.rank = ranks / 2, .factor = 1.7}, {.rank = 1548 % ranks, .factor = 40}},
      .slow_links = {{.from = ranks - 1, .to = 0, .factor = 3}, {.from = ranks / 3, .to = ranks / 3 + 1, .factor = 5}}};
  for (const Disturbance& disturbance : {Disturbance{}, disturbed}) {
    for (const double gradient_bytes : {0.0, 2.0}) {
      const PassCosts costs{.pair_seconds = 1e-6,
                            .visit_seconds = 1e-5,
                            .key_value_bytes = 1,
                            .gradient_bytes = gradient_bytes,
                            .overlap_seconds = gradient_bytes > 0 ? overlap : 0};
      RingCase ring = ring_case(ranks, layout, causal, min_part);
      ASSERT_TRUE(RingWork(ring).even());
      const Outcome even = simulate(ring, costs, disturbance);
      ring.documents = {0};
      ASSERT_FALSE(RingWork(ring).even());
      const Outcome general = simulate(ring, costs, disturbance);
      EXPECT_EQ(even.clocks, general.clocks);
      EXPECT_EQ(even.times.events, general.times.events);
      for (int rank = 0; rank < ranks; ++rank) {
        const auto i = static_cast<std::size_t>(rank);
        EXPECT_NEAR(even.times.compute[i], general.times.compute[i], 1e-9 * general.times.compute[i]);
        EXPECT_NEAR(even.times.wait[i], general.times.wait[i], 1e-9 * general.clocks[i]);
      }
      if (::testing::Test::HasFailure()) return;
    }
  }
}

TEST(EvenRing, IsTheGeneralPass) {
  for (const Layout layout : all_layouts) {
    for (const bool causal : {true, false}) {
      for (const int ranks : {1, 2, 3, 4, 7, 33}) {
        for (const std::int64_t min_part : {16, 64, 100}) expect_equal_passes(ranks, layout, causal, min_part);
      }
    }
  }
}

TEST(EvenRing, IsTheGeneralPassOverTiles) {
  for (const Layout layout : all_layouts) expect_equal_passes(1700, layout, /*causal=*/true, 16);
}

TEST(EvenRing, HasTheEventsOfSixtyFiveThousandRanks) {
  const int ranks = 65536;
  const RingWork work({.mask = {}, .layout = Layout::contiguous, .length = 2 * ranks, .ranks = ranks, .min_part = 64});
  const Hardware hardware = uneven_links();
  const Disturbance none;
  std::vector<double> clocks(ranks, 0.0);
  const PassTimes times =
      RingSimulation(work, hardware, 0, none).pass({.pair_seconds = 1, .key_value_bytes = 1e-3}, clocks, 0);
  const std::int64_t blocks = std::int64_t{ranks} * (ranks + 1) / 2;
  EXPECT_EQ(times.events, 2 * blocks - ranks);
  EXPECT_EQ(clocks.back(), 3 + 4.0 * (ranks - 1));  // the last rank meets every block, and waits for none
}

TEST(EvenRing, AnUnevenRingTooLongToSimulateIsRefused) {
  const std::string sentence =
      error_of(ExitCode::usage, [] { RingWork work({.mask = {}, .length = 65537, .ranks = 20000}); });
  EXPECT_NE(sentence.find("more than the 16384"), std::string::npos) << sentence;
}

}  // namespace
}  // namespace ringtrain::testing
