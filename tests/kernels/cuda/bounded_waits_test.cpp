// A hang becomes a message: with bounded waits (gpu_tests_bounded), a signal that never comes ends the kernel with an
// error that names the wait, where it was, and whose. The emulator loses the signal.
#if defined(RINGTRAIN_CUDA_EMULATED)
#include "framework/cuda/wait_report.h"
#include "kernels/cuda/bounded_wait.cuh"
#include "tests/kernels/cuda/gpu_attention.h"
#include "tests/support/gpu.h"

namespace ringtrain::gpu {
namespace {

using cuda_emulator::Signal;

class BoundedWaits : public testing::GpuTest {
 protected:
  void SetUp() override {
    testing::GpuTest::SetUp();
    if (IsSkipped()) return;
    if (!cuda::waits_are_bounded()) GTEST_SKIP() << "waits have no end in this build: gpu_tests_bounded has some";
  }
  void TearDown() override {
    cuda_emulator::lose(Signal::arrival, 0);
    cuda_emulator::lose(Signal::release, 0);
    cuda_emulator::reset();
    cuda::clear_wait_report();
  }

  /// Returns the error of attention on a device with this capability if the nth signal is lost.
  static std::string error_of(int capability, Signal signal, int nth, bool deterministic = true) {
    use_devices(capability, 3);
    cuda::clear_wait_report();
    std::string what;
    try {
      Gpu gpu;
      Case c = whole("a signal is lost", shape_of(1, 2, 1, 128, true, 0), 400);
      c.shape.deterministic = deterministic;
      cuda_emulator::lose(signal, nth);
      check(gpu, c, DType::bfloat16);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::device);
      what = error.what();
    }
    return what;
  }
  static void expect_in(const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << "'" << part << "' is not in: " << text;
  }
};

TEST_F(BoundedWaits, AnArrivalThatNeverComesIsReported) {
  const std::string text = error_of(90, Signal::arrival, 4);
  expect_in(text, "; attention forward (Hopper) hangs: in block 0, after ");
  expect_in(text, "warp 0 (loader) waits for an empty buffer of ");
  expect_in(text, "warps 4 to 11 (computing) wait for a full buffer of ");
  expect_in(text, " (stage 0, phase of parity 0)");
  EXPECT_EQ(text.find('\n'), std::string::npos) << "more than one sentence: " << text;
}

TEST_F(BoundedWaits, ATurnThatNeverComesIsReported) {
  for (const int capability : {80, 90}) {
    const std::string text = error_of(capability, Signal::release, 1);
    expect_in(text, capability == 90 ? "; attention backward (Hopper) hangs: in block "
                                     : "; attention backward (mma) hangs: in block ");
    expect_in(text, capability == 90 ? "warp 1 (adder of dq)" : "warp 0 (computing)");
    expect_in(text, " waits for its turn to add dq (blocks before it 1, blocks that have added 0)");
  }
}

TEST_F(BoundedWaits, AnyLostSignalIsReported) {
  int lost = 0, needed = 0;
  for (int nth = 1; nth < 400; nth += 7) {
    const std::string text = error_of(90, Signal::arrival, nth);
    ++lost;
    if (text.empty()) continue;  // at a block's end, some buffers are released although no thread waits
    ++needed;
    expect_in(text, " hangs: in block ");
  }
  EXPECT_GE(needed, lost - 3);
}

TEST_F(BoundedWaits, NothingIsSaidWhereAllSignalsCome) {
  EXPECT_EQ(error_of(90, Signal::arrival, 0), "");
  EXPECT_EQ(cuda::wait_clause(), "");
}

}  // namespace
}  // namespace ringtrain::gpu

#endif
