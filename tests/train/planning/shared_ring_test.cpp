// train/planning/shared_ring.h: where nothing is shared it is RingSimulation's general pass; ranks that share
// processors, and messages that these carry, against passes worked out by hand.
#include "train/planning/shared_ring.h"

#include <gtest/gtest.h>

#include "framework/random.h"
#include "train/planning/ring_simulation.h"

namespace ringtrain::testing {
namespace {

using Times = std::vector<double>;

RingCase ring_case(int ranks, Layout layout, std::int64_t tokens, std::int64_t min_part = 1000) {
  return {.mask = {}, .layout = layout, .length = tokens * ranks, .ranks = ranks, .min_part = min_part};
}
Hardware links(double bandwidth, double core_bandwidth = 0) {
  Hardware hardware;
  hardware.levels = {{.ranks = 64, .bandwidth = bandwidth, .latency = 0, .core_bandwidth = core_bandwidth}};
  return hardware;
}
Times simulate(const RingCase& ring, const Hardware& hardware, const PassCosts& costs,
               const SharedProcessors& processors, Times clocks, const Disturbance& disturbance = {}) {
  const RingWork work(ring);
  RingSimulation(work, hardware, 0, disturbance, processors).pass(costs, clocks, 3);
  return clocks;
}

constexpr PassCosts forward{.pair_seconds = 1, .key_value_bytes = 1};
constexpr SharedProcessors one_core_of_two{.cores = 1, .threads = 1, .ranks = 2};

TEST(SharedRing, IsTheGeneralPassWhereNothingIsShared) {
  Hardware uneven = links(0);
  uneven.levels = {{.ranks = 2, .bandwidth = 7e4, .latency = 1e-5}, {.ranks = 64, .bandwidth = 6e3, .latency = 2e-3}};
  const Disturbance disturbance{.jitter = 0.3, .stragglers = {{.rank = 1, .factor = 1.7}}};
  for (const Layout layout : all_layouts) {
    for (const int ranks : {1, 2, 3, 4, 9}) {
      for (const double gradient_bytes : {0.0, 2.0}) {
        // Where several messages want a link, the general pass takes them by rank, and this one by time.
        if (layout == Layout::contiguous && gradient_bytes > 0 && ranks > 2) continue;
        const RingCase ring = ring_case(ranks, layout, 64, 16);
        const PassCosts costs{.pair_seconds = 1e-6,
                              .visit_seconds = 1e-5,
                              .key_value_bytes = 1,
                              .gradient_bytes = gradient_bytes,
                              .overlap_seconds = gradient_bytes > 0 ? 1e-3 : 0};
        Times clocks;
        for (int i = 0; i < ranks; ++i) {
          clocks.push_back(1 + 1e-3 * random_uniform(3, Purpose::simulation, static_cast<std::uint64_t>(i)));
        }
        const SharedProcessors enough{
            .cores = static_cast<double>(ranks), .threads = 1, .ranks = static_cast<double>(ranks)};
        const Times shared = simulate(ring, uneven, costs, enough, clocks, disturbance);
        const Times general = simulate(ring, uneven, costs, {}, clocks, disturbance);
        for (std::size_t i = 0; i < clocks.size(); ++i) {
          EXPECT_NEAR(shared[i], general[i], 1e-9) << name_of(layout) << " " << ranks << " " << gradient_bytes;
        }
      }
    }
  }
}

TEST(SharedRing, ARankThatIsNotInThePassHoldsACore) {
  // 10 pairs each at a second a pair; then rank 1 has 16 of block 0, beside what rank 0 does after the pass.
  EXPECT_EQ(simulate(ring_case(2, Layout::contiguous, 4), links(1e9), forward, one_core_of_two, {0, 0}),
            (Times{10, 26}));
  // Rank 1 begins 4 s later: rank 0 has no more of the core for that.
  EXPECT_EQ(simulate(ring_case(2, Layout::contiguous, 4), links(1e9), forward, one_core_of_two, {0, 4}),
            (Times{10, 30}));
  // Two rings of a machine share it like one.
  const SharedProcessors two_rings{.cores = 1, .threads = 1, .ranks = 4, .rings = 2};
  EXPECT_EQ(simulate(ring_case(2, Layout::contiguous, 4), links(1e9), forward, two_rings, {0, 0}), (Times{10, 26}));
}

TEST(SharedRing, ARankThatWaitsLeavesTheCoreToTheOther) {
  // Full blocks, and rank 1 needs twice as long. Its first is half done when rank 0 waits for that block's gradient,
  // from 16 on, and is whole at 24. So is its second, at 40, when rank 0 waits for its own block's gradient.
  RingCase ring = ring_case(2, Layout::contiguous, 4);
  ring.mask.causal = false;
  const PassCosts backward{.pair_seconds = 1, .key_value_bytes = 1, .gradient_bytes = 1};
  const Disturbance straggler{.stragglers = {{.rank = 1, .factor = 2}}};
  const Times alone = simulate(ring, links(1e9), backward, one_core_of_two, {0, 0}, straggler);
  EXPECT_NEAR(alone[0], 48, 1e-6);
  EXPECT_NEAR(alone[1], 48, 1e-6);
  // As much as it has threads for: of two cores each has one at best.
  const SharedProcessors enough{.cores = 2, .threads = 1, .ranks = 2};
  EXPECT_NEAR(simulate(ring, links(1e9), backward, enough, {0, 0}, straggler)[0], 64, 1e-6);
}

TEST(SharedRing, AMessageThatACoreCarriesTakesItsTime) {
  // Block 0 of 4 bytes moves while both compute: 2 s of a core on each side, of which each rank has a half: 4 s more.
  // Then rank 1 has 16 pairs, and rank 0 goes on elsewhere.
  EXPECT_EQ(simulate(ring_case(2, Layout::contiguous, 4), links(1, 2), forward, one_core_of_two, {0, 0}),
            (Times{14, 30}));
  // Full blocks over a slow link: 16 pairs and 4 s of carrying until 20, the link until 40, 16 more pairs.
  RingCase ring = ring_case(2, Layout::contiguous, 4);
  ring.mask.causal = false;
  EXPECT_EQ(simulate(ring, links(0.1, 2), forward, one_core_of_two, {0, 0}), (Times{56, 56}));
}

}  // namespace
}  // namespace ringtrain::testing
