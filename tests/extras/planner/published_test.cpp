// tests/extras/planner/published.h: the page that prints the paper's numbers has what is computed beside them.
#include "tests/extras/planner/published.h"

#include <gtest/gtest.h>

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
};

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
