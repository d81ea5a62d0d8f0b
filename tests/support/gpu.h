// Tests that need a GPU (or the emulator of one) are skipped, and shown as such, if there is none.
#pragma once

#include <gtest/gtest.h>

#include "framework/cuda/context.h"

#if defined(RINGTRAIN_CUDA_EMULATED)
#include "cuda_emulator.h"
#endif

namespace ringtrain::testing {

template <class Fixture>
class OnGpu : public Fixture {
 protected:
  using Fixture::Fixture;
  void SetUp() override {
    Fixture::SetUp();
    if (cuda::device_count() == 0) GTEST_SKIP() << "no GPU";
  }
};
using GpuTest = OnGpu<::testing::Test>;

}  // namespace ringtrain::testing
