// tests/extras/planner/published.h against the paper's own numbers, typed here once more, and the page that prints
// them.
#include "tests/extras/planner/published.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/support/paths.h"

namespace ringtrain::testing {
namespace {

/// The hardware files are looked for in the working directory first.
class Published : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::current_path(source_folder()); }
  static Hardware hardware(const std::string& name) { return read_hardware(find_hardware(name)); }
};

TEST_F(Published, LeastBlocksAreThePapers) {
  const auto block = [](const char* name) { return min_block(hardware(name)) / 1e3; };
  EXPECT_NEAR(block("paper-a100-nvlink"), 1.0, 0.05);
  EXPECT_NEAR(block("tpu-v3"), 1.1, 0.05);
  EXPECT_NEAR(block("tpu-v4"), 1.0, 0.05);
  EXPECT_NEAR(block("tpu-v5e"), 1.1, 0.05);
  EXPECT_NEAR(6 * block("paper-a100-nvlink"), 6.2, 0.05);
  EXPECT_NEAR(6 * block("tpu-v3"), 6.6, 0.05);
  EXPECT_NEAR(6 * block("tpu-v4"), 6.2, 0.05);
  EXPECT_NEAR(6 * block("tpu-v5e"), 6.3, 0.05);
  // The paper prints 24.5 and 149.5; its own rates give 312 / 12.5 = 24.96, and six times that.
  EXPECT_NEAR(block("paper-a100-infiniband"), 24.96, 1e-9);
  EXPECT_NEAR(6 * block("paper-a100-infiniband"), 149.76, 1e-9);
}

TEST_F(Published, ActivationsAreThoseOfTableOne) {
  constexpr double b = 2, s = 4096, h = 256, n = 8, c = 512;
  EXPECT_EQ(layer_activation_bytes(LayerKind::vanilla, b, s, h, n, c), 2 * 2.0 * 8 * 4096 * 4096);
  EXPECT_EQ(layer_activation_bytes(LayerKind::memory_efficient_attention, b, s, h, n, c), 8 * 2.0 * 4096 * 256);
  EXPECT_EQ(layer_activation_bytes(LayerKind::blockwise, b, s, h, n, c), 2 * 2.0 * 4096 * 256);
  EXPECT_EQ(layer_activation_bytes(LayerKind::ring, b, s, h, n, c), 12 * 2.0 * 512 * 256);
}

TEST_F(Published, FlopsOfLongerContextsAreThoseOfFigureFive) {
  constexpr double K = 1024;
  EXPECT_NEAR(flops_ratio(4096, 8 * K), 1.1, 0.051);
  EXPECT_NEAR(flops_ratio(4096, 128 * K), 5.4, 0.05);
  EXPECT_NEAR(flops_ratio(4096, 1024 * K), 37.4, 0.05);
  EXPECT_NEAR(flops_ratio(5120, 32768 * 4 * K), 3855.9, 0.1);  // the paper says 5140, but computes with 5120
  EXPECT_NEAR(flops_ratio(7168, 3072 * 4 * K), 268.0, 0.05);
  EXPECT_NEAR(flops_ratio(8192, 256 * K), 5.8, 0.05);
  EXPECT_NEAR(flops_ratio(12288, 3072 * 4 * K), 162.6, 0.05);
  EXPECT_NEAR(flops_ratio(36864, 32768 * 4 * K), 596.8, 0.05);
  EXPECT_DOUBLE_EQ(sequence_flops(3, 5), 24 * 3 * 25 + 4 * 9 * 5);
}

TEST_F(Published, ParametersAreTheModels) {
  EXPECT_NEAR(parameters_of({"7B", 4096, 32, 32, 11008}) * 1e-9, 6.74, 0.01);
  EXPECT_NEAR(parameters_of({"65B", 8192, 80, 64, 22016}) * 1e-9, 65.2, 0.2);
}

TEST_F(Published, TheLongestContextJustFits) {
  Hardware device;
  device.memory_bytes = 16e6;
  const PublishedModel model{"tiny", 10, 4, 2, 20};  // 4 x (400 + 600) + 640,000 parameters: 16 bytes each on 4 devices
  const double state = 16 * 644000.0 / 4;
  // Blockwise: 4 outputs of 10 x 4 bytes a token, and 2 x 10 x 2 of one layer.
  const double token = 4 * 10 * 4 + 2 * 10 * 2;
  const std::int64_t longest = longest_published_context(model, LayerKind::blockwise, device, 4, 4);
  EXPECT_LE(state + token * static_cast<double>(longest), 16e6);
  EXPECT_GT(state + token * static_cast<double>(2 * longest), 16e6);
  EXPECT_EQ(longest_published_context(model, LayerKind::ring, device, 4, 4) % 4, 0);
}

TEST_F(Published, SumsOfTutorialsComeOut) {
  const std::string tables = published_tables();
  for (const char* row :
       {"covers 4·c·d / B, A100 over NVLink | 1040 tokens | c ≥ F / B |",  // 312e12 / 300e9
        "keys and values of 1,024 tokens, width 4,096, float32 | 33.55 MB | 33.55 MB |",
        "a device of 2 (or bfloat16 on one) | 16.78 MB | 16.77 MB |", "4,096 bytes a position each | 8.19 GB | 8 GB |",
        "the same, a device of 8 | 1.02 GB | 1 GB |", "one layer's output, bfloat16 | 204.8 GB | - |",
        "the same of 6 layers and more | 1228.8 GB | over 1,000 GB |", "8 GB over 200 GB/s | 0.04 s | 0.04 s |",
        "d·c² operations, A100 at peak | 0.205 s | - |", "its eight hops | 1.64 s | 1 to 2 s |",
        "all 4·d·s² FLOPs, on 8 H100 at peak | 2.07 s | - |", "A100 over NVLink | 0 % | under 5 % |",
        "the same over InfiniBand | 205 % | - |",  // 24,960 / 8,192 - 1
        "256 devices with 8,192 each | 2097152 | 2,097,152 |", "| 1024 | 33.55 | 16.78 | 8.39 | 4.19 |",
        "| 8192 | 268.44 | 134.22 | 67.11 | 33.55 |", "| 32768 | 1073.74 | 536.87 | 268.44 | 134.22 |",
        // 3 x 8 tokens of 4 values; 2 x 4 x 4 pairs of 4 products; keys and values of 4 tokens of 4 values.
        "| a hop of a device | 48 | 128 | 32 |", "| a device | 48 | 256 | 32 |", "| both | 96 | 512 | 64 |"}) {
    EXPECT_NE(tables.find(row), std::string::npos) << row;
  }
}

TEST_F(Published, ThePageHoldsTheTablesAsTheyAreComputed) {
  std::ifstream stream("bench/planning/paper.md");
  std::stringstream page;
  page << stream.rdbuf();
  EXPECT_NE(page.str().find(published_tables()), std::string::npos)
      << "bench/planning/paper.md does not hold the tables; they should be:\n"
      << published_tables();
}

}  // namespace
}  // namespace ringtrain::testing
