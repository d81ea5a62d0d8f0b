// Tests that need a GPU (or the emulator of one) are skipped, and shown as such, if there is none.
#pragma once

#include <gtest/gtest.h>

#include "framework/cuda/context.h"

namespace ringtrain::testing {

class GpuTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda::device_count() == 0) GTEST_SKIP() << "no GPU";
  }
};

}  // namespace ringtrain::testing
