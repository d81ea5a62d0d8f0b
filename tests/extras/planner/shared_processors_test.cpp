// simulate_pass() for ranks that share processors. If nothing is shared, the result is that for ranks with their own
// devices. Ranks without work, and messages that processors transfer, are compared with passes calculated by hand.
#include <gtest/gtest.h>

#include <cmath>

#include "extras/planner/ring_simulation.h"
#include "extras/planner/step_simulation.h"
#include "framework/config/config.h"
#include "framework/config/read_config.h"
#include "framework/error.h"
#include "framework/random.h"
#include "layers/check_model.h"
#include "layers/model_parameters.h"
#include "tests/support/paths.h"

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
               const SharedProcessors& processors, Times clocks) {
  const RingWork work(ring);
  simulate_pass({work, hardware, 0, processors}, costs, clocks);
  return clocks;
}

constexpr PassCosts forward{.pair_seconds = 1, .key_value_bytes = 1};
constexpr SharedProcessors one_core_of_two{.cores = 1, .threads = 1, .ranks = 2};

TEST(SharedProcessors, EnoughOfThemAreLikeDevicesOfTheRanksOwn) {
  Hardware uneven = links(0);
  uneven.levels = {{.ranks = 2, .bandwidth = 7e4, .latency = 1e-5}, {.ranks = 64, .bandwidth = 6e3, .latency = 2e-3}};
  for (const Layout layout : all_layouts) {
    for (const int ranks : {1, 2, 3, 4, 9}) {
      for (const double gradient_bytes : {0.0, 2.0}) {
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
        const Times shared = simulate(ring, uneven, costs, enough, clocks);
        const Times general = simulate(ring, uneven, costs, {}, clocks);
        for (std::size_t i = 0; i < clocks.size(); ++i) {
          EXPECT_NEAR(shared[i], general[i], 1e-12) << name_of(layout) << " " << ranks << " " << gradient_bytes;
        }
      }
    }
  }
}

TEST(SharedProcessors, ARankThatIsNotInThePassHoldsACore) {
  // 10 pairs each at a second per pair; then rank 1 has 16 of block 0, during rank 0's work after the pass.
  EXPECT_EQ(simulate(ring_case(2, Layout::contiguous, 4), links(1e9), forward, one_core_of_two, {0, 0}),
            (Times{10, 26}));
  // Rank 1 begins 4 s later, but rank 0 gets no more of the core.
  EXPECT_EQ(simulate(ring_case(2, Layout::contiguous, 4), links(1e9), forward, one_core_of_two, {0, 4}),
            (Times{10, 30}));
  // Two rings of a machine share it like one.
  const SharedProcessors two_rings{.cores = 1, .threads = 1, .ranks = 4, .rings = 2};
  EXPECT_EQ(simulate(ring_case(2, Layout::contiguous, 4), links(1e9), forward, two_rings, {0, 0}), (Times{10, 26}));
}

TEST(SharedProcessors, ARankWithoutWorkInBackwardLeavesTheCoreToTheOther) {
  // 10 pairs each of its own block; then rank 1 has 16 of block 0, and rank 0 waits for that block's gradients.
  const PassCosts backward{.pair_seconds = 1, .key_value_bytes = 1, .gradient_bytes = 1};
  const RingCase ring = ring_case(2, Layout::contiguous, 4);
  const Times single = simulate(ring, links(1e9), backward, one_core_of_two, {0, 0});
  EXPECT_NEAR(single[0], 10 + 16 / 2.0, 1e-6);
  EXPECT_NEAR(single[1], 10 + 16 / 2.0, 1e-6);
  // A rank gets no more than its threads: of two cores, each rank has at most one.
  const SharedProcessors enough{.cores = 2, .threads = 1, .ranks = 2};
  EXPECT_NEAR(simulate(ring, links(1e9), backward, enough, {0, 0})[0], 10 + 16, 1e-6);
}

TEST(SharedProcessors, AMessageThatACoreCarriesTakesItsTime) {
  // Block 0 of 4 bytes moves while both compute: 2 s of a core on each side, of which each rank has half: 4 s more.
  // Then rank 1 has 16 pairs, and rank 0 continues elsewhere.
  EXPECT_EQ(simulate(ring_case(2, Layout::contiguous, 4), links(1, 2), forward, one_core_of_two, {0, 0}),
            (Times{14, 30}));
  // Full blocks over a slow link: 16 pairs and 4 s of transferring until 20, the link until 40, 16 more pairs.
  RingCase ring = ring_case(2, Layout::contiguous, 4);
  ring.mask.causal = false;
  EXPECT_EQ(simulate(ring, links(0.1, 2), forward, one_core_of_two, {0, 0}), (Times{56, 56}));
}

/// Returns 10^x, x uniform in [-range, range].
double magnitude(std::uint64_t seed, std::uint64_t& index, double range) {
  return std::pow(10, range * (2 * random_uniform(seed, Purpose::simulation, index++) - 1));
}

TEST(SharedProcessors, EveryPlanEndsForAllMagnitudes) {
  Config config =
      read_config(source_folder() + "/configs/tiny.yaml", {"data.packing=concat"}, ConfigUse::know, check_model);
  config.training.seq_len = 48;
  config.training.global_batch_size = 2;
  config.training.micro_batch_size = 1;
  const ParameterTable table = make_parameter_table(config.model);
  int ended = 0, refused = 0;
  std::uint64_t index = 0;
  for (std::uint64_t seed = 0; seed < 3000; ++seed, index = 0) {
    const auto choose = [&](std::uint64_t count) {
      return static_cast<std::int64_t>(random_uniform(seed, Purpose::simulation, index++) * static_cast<double>(count));
    };
    // A third of all within realistic ranges, a third extreme, a third beyond any.
    const double range = std::array{4.0, 30.0, 300.0}[seed % 3];
    const auto rate = [&](double typical) { return typical * magnitude(seed, index, range); };
    Hardware hardware;
    hardware.name = "fuzzed";
    hardware.cores = choose(4);
    hardware.peak_float32 = rate(1e11);
    hardware.matmul_efficiency = hardware.attention_forward_efficiency = hardware.attention_backward_efficiency = 0.5;
    hardware.pair_seconds_forward = choose(2) == 0 ? 0 : rate(1e-10);
    hardware.pair_seconds_backward = choose(2) == 0 ? 0 : rate(1e-10);
    hardware.memory_bandwidth = rate(1e10);
    hardware.kernel_seconds = choose(2) == 0 ? 0 : rate(1e-6);
    hardware.levels = {{.ranks = 2, .bandwidth = rate(1e9), .latency = rate(1e-5), .core_bandwidth = rate(1e9)},
                       {.ranks = 64, .bandwidth = rate(1e8), .core_bandwidth = choose(2) == 0 ? 0 : rate(1e9)}};
    config.mesh = {.data = 1 + choose(2), .sequence = 1 + choose(5)};
    config.mesh.layout = all_layouts[choose(3)];
    try {
      const StepTimes times = simulate_step({.config = config, .table = table, .hardware = hardware});
      EXPECT_TRUE(times.step_seconds > 0 && std::isfinite(times.step_seconds)) << seed;
      EXPECT_TRUE(times.ring_wait >= 0 && std::isfinite(times.ring_wait)) << seed;
      ++ended;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::usage) << seed << ": " << error.what();
      EXPECT_NE(std::string(error.what()).find("too slow"), std::string::npos) << error.what();
      ++refused;
    }
  }
  EXPECT_GT(ended, 1000);
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace ringtrain::testing
