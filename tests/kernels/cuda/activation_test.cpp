// SwiGLU and GELU on the GPU against the CPU's in double: small and large arguments, outputs in the memory of inputs.
#include "kernels/activation.h"

#include "tests/support/cuda_harness.h"

namespace ringtrain {
namespace {

using namespace ringtrain::testing;

class GpuActivationTest : public GpuKernelTest {};

constexpr std::int64_t sizes[] = {0, 1, 9, 4096, 8195};

TEST_F(GpuActivationTest, Swiglu) {
  for (DType dtype : storage_types) {
    for (std::int64_t n : sizes) {
      for (double stddev : {1.0, 30.0}) {
        for (std::int64_t skip : {0, 3}) {
          forget();
          const std::string what = fmt::format("{} elements of {}, stddev {}", n, name_of(dtype), stddev);
          const Both gate = random({n}, dtype, 1, stddev, skip), up = random({n}, dtype, 2, 1, skip);
          const Both dy = random({n}, dtype, 3, 1, skip), y = output({n}, dtype, skip);
          const Both dgate = output({n}, dtype, skip), dup = output({n}, dtype);
          on_both([&](Stream& stream, auto at) {
            swiglu_forward(stream, at(y), at(gate), at(up));
            swiglu_backward(stream, at(dgate), at(dup), at(dy), at(gate), at(up));
          });
          for (const Both& result : {y, dgate, dup}) expect_agrees(result, what);
          on_both(
              [&](Stream& stream, auto at) { swiglu_backward(stream, at(gate), at(up), at(dy), at(gate), at(up)); });
          EXPECT_EQ(on_host(gate.gpu), on_host(dgate.gpu)) << what;
          EXPECT_EQ(on_host(up.gpu), on_host(dup.gpu)) << what;
        }
      }
    }
  }
}

TEST_F(GpuActivationTest, Gelu) {
  for (DType dtype : storage_types) {
    for (std::int64_t n : sizes) {
      for (double stddev : {1.0, 30.0}) {
        for (std::int64_t skip : {0, 3}) {
          forget();
          const std::string what = fmt::format("{} elements of {}, stddev {}", n, name_of(dtype), stddev);
          const Both x = random({n}, dtype, 1, stddev, skip), dy = random({n}, dtype, 3, 1, skip);
          const Both y = output({n}, dtype, skip), dx = output({n}, dtype, skip);
          on_both([&](Stream& stream, auto at) {
            gelu_forward(stream, at(y), at(x));
            gelu_backward(stream, at(dx), at(dy), at(x));
          });
          expect_agrees(y, what);
          expect_agrees(dx, what);
          on_both([&](Stream& stream, auto at) { gelu_backward(stream, at(x), at(dy), at(x)); });
          EXPECT_EQ(on_host(x.gpu), on_host(dx.gpu)) << what;
        }
      }
    }
  }
}

}  // namespace
}  // namespace ringtrain
