// `--version` of every program: version, commit and build options, without work and without a config.
#include <gtest/gtest.h>

#include <regex>

#include "tests/support/folder_test.h"
#include "tests/train/child_process.h"

namespace ringtrain::testing {
namespace {

class Version : public FolderTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(Version, IsPrintedWithCommitAndBuildOptions) {
  const ChildResult result = run_child(GetParam(), {"--version"}, folder);
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(result.err, "");
  const std::regex form(
      "ringtrain [0-9]+\\.[0-9]+\\.[0-9]+ \\(commit ([0-9a-f]{12,}\\+?|unknown)\\)\n"
      "[A-Za-z]+ [0-9.]+, \\w*, -march=[^,]+, bfloat16 by (AVX512-BF16|AVX512-BF16 emulated|float32), CUDA "
      "(on|off|emulated), NCCL (on|off), MPI (on|off), sanitizers .+\n");
  EXPECT_TRUE(std::regex_match(result.out, form)) << result.out;
}

INSTANTIATE_TEST_SUITE_P(Programs, Version,
                         ::testing::Values("train", "evaluate", "generate", "prepare", "export", "check"));

}  // namespace
}  // namespace ringtrain::testing
