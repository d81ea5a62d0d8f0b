// What the tests of whole runs on a GPU share: a token file, and skipping if there is no GPU.
#pragma once

#include "tests/support/gpu.h"
#include "tests/train/train_fixture.h"

namespace ringtrain::testing {

class GpuTextTest : public TextTest {
 protected:
  using TextTest::TextTest;
  void SetUp() override {
    TextTest::SetUp();
    if (cuda::device_count() == 0) GTEST_SKIP() << "no GPU";
  }
};

}  // namespace ringtrain::testing
