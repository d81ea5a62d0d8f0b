// Compares SwiGLU, GEGLU, and GELU on the GPU with the CPU's in double: small and large arguments, outputs in the
// memory of inputs.
#include "kernels/activation.h"

#include "tests/support/cuda_harness.h"

namespace ringtrain {
namespace {

using namespace ringtrain::testing;

class GpuActivationTest : public GpuKernelTest {
 protected:
  template <class Forward, class Backward>
  void expect_agreement(const Forward& forward, const Backward& backward, bool gated);
};

constexpr std::int64_t sizes[] = {0, 1, 9, 4096, 8195};

/// Calls of an activation and its backward: forward(stream, y, gate, up) and so on.
template <class Forward, class Backward>
void GpuActivationTest::expect_agreement(const Forward& forward, const Backward& backward, bool gated) {
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
            forward(stream, at(y), at(gate), at(up));
            backward(stream, at(dgate), at(dup), at(dy), at(gate), at(up));
          });
          expect_agrees(y, what);
          expect_agrees(dgate, what);
          if (gated) expect_agrees(dup, what);
          on_both([&](Stream& stream, auto at) { backward(stream, at(gate), at(up), at(dy), at(gate), at(up)); });
          EXPECT_EQ(on_host(gate.gpu), on_host(dgate.gpu)) << what;
          EXPECT_TRUE(!gated || on_host(up.gpu) == on_host(dup.gpu)) << what;
        }
      }
    }
  }
}

TEST_F(GpuActivationTest, Agree) {
  expect_agreement([](auto&&... x) { swiglu_forward(x...); }, [](auto&&... x) { swiglu_backward(x...); }, true);
  expect_agreement([](auto&&... x) { geglu_forward(x...); }, [](auto&&... x) { geglu_backward(x...); }, true);
  expect_agreement([](Stream& stream, auto y, auto x, auto) { gelu_forward(stream, y, x); },
                   [](Stream& stream, auto dx, auto, auto dy, auto x, auto) { gelu_backward(stream, dx, dy, x); },
                   false);
}

}  // namespace
}  // namespace ringtrain
