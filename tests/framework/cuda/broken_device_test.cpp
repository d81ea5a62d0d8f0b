// After some failures (an access to no memory, an assertion of the hardware), a GPU returns the same error for every
// call of the process: no later test could pass, and each would blame its own subject. Such a process ends right after
// the test that broke it, with code 7; a program that runs many tests (scripts/gpu-check) continues with the others in
// a new process.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>

#include "framework/error.h"
#include "tests/support/gpu.h"

namespace ringtrain::testing {
namespace {

class BrokenDevice final : public ::testing::EmptyTestEventListener {
  // Determined beforehand: a broken device may return its error even for this, as if there were none.
  void OnTestProgramStart(const ::testing::UnitTest&) override { there_is_one_ = cuda::device_count() > 0; }
  void OnTestEnd(const ::testing::TestInfo& test) override {
    if (!test.result()->Failed() || !there_is_one_) return;
    const cudaError_t status = cudaDeviceSynchronize();
    if (status == cudaSuccess) return;
    std::printf("[  FAILED  ] %s.%s (0 ms)\nThe GPU does not recover in this process: %s\n", test.test_suite_name(),
                test.name(), cudaGetErrorName(status));
    std::fflush(stdout);
    std::_Exit(static_cast<int>(ExitCode::device));
  }
  bool there_is_one_ = false;
};

#if defined(RINGTRAIN_CUDA_EMULATED)
class NoDefaultStream final : public ::testing::Environment {
  void TearDown() override { EXPECT_EQ(cuda_emulator::default_stream_work(), 0u); }
};
#endif

[[maybe_unused]] const bool listens = [] {
#if defined(RINGTRAIN_CUDA_EMULATED)
  ::testing::AddGlobalTestEnvironment(new NoDefaultStream);  // owned by gtest, as the next
#endif
  ::testing::UnitTest::GetInstance()->listeners().Append(new BrokenDevice);
  return true;
}();

}  // namespace
}  // namespace ringtrain::testing
