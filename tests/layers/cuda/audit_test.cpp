// The audit of attention on a GPU: rows are copied to the host, and bounds hold for the rounding of tensor cores.
#include "tests/layers/audit_case.h"
#include "tests/support/gpu.h"

namespace ringtrain::testing {
namespace {

using GpuAudit = GpuTest;

TEST_F(GpuAudit, RightStepsRaiseNoAlarmAndComeNearTheirBounds) {
  expect_no_alarm(Device::cuda(0), std::array{DType::bfloat16, DType::float32}, /*steps=*/1, /*longest=*/300);
}

TEST_F(GpuAudit, FindsSeededFlipsOfMoreThanFourBounds) {
  seed_flips(Device::cuda(0), DType::bfloat16, 100);
}

}  // namespace
}  // namespace ringtrain::testing
