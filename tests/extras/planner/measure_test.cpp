// extras/planner/measure.h: the fit finds the parts of samples, and a hardware file is read back as it was written.
#include "extras/planner/measure.h"

#include <gtest/gtest.h>

namespace ringtrain::testing {
namespace {

TEST(Fit, FindsTheSecondsOfEachPart) {
  std::vector<TimedCall> samples;
  for (const double n : {1.0, 2.0, 5.0, 9.0}) {
    for (const double flops : {1e6, 1e9}) samples.push_back({{n, flops}, 2e-6 * n + 1e-11 * flops});
  }
  const std::vector<double> seconds = fit(samples);
  EXPECT_NEAR(seconds[0], 2e-6, 1e-12);
  EXPECT_NEAR(seconds[1], 1e-11, 1e-17);
}

TEST(Fit, NoPartTakesLessThanNoTime) {
  // The second part would have to take -1: without it, the first takes the nearest value.
  const std::vector<double> seconds = fit({{{1, 0}, 2}, {{1, 1}, 1}});
  EXPECT_GT(seconds[0], 1);
  EXPECT_EQ(seconds[1], 0);
}

TEST(HardwareYaml, IsReadBackToTheSameValues) {
  Hardware hardware;
  hardware.name = "written";
  hardware.cores = 3;
  hardware.peak_float32 = 1.1e11;
  hardware.peak_float64 = 5e10 / 3;
  hardware.peak_bfloat16 = 8e10 / 3;
  hardware.matmul_efficiency = hardware.attention_forward_efficiency = hardware.attention_backward_efficiency = 1.0 / 3;
  hardware.pair_seconds_forward = 1e-10 / 3;
  hardware.pair_seconds_backward = 3e-10;
  hardware.memory_bytes = 1e10;
  hardware.memory_bandwidth = 1e10 / 7;
  hardware.product_bandwidth = 1e9 / 7;
  hardware.kernel_seconds = 1e-6 / 7;
  hardware.levels = {{.ranks = 64, .bandwidth = 1e9 / 9, .latency = 1e-5 / 9}};
  const std::string text = hardware_yaml(hardware);
  EXPECT_EQ(hardware_yaml(parse_hardware(text, "written.yaml")), text);
}

}  // namespace
}  // namespace ringtrain::testing
