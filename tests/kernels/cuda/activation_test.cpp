// Compares activations on the GPU with the CPU's in double: small and large arguments, outputs in the memory
// of inputs.
#include "kernels/activation.h"

#include "tests/support/cuda_harness.h"

namespace ringtrain::testing {
namespace {

class GpuActivationTest : public GpuKernelTest {};

TEST_F(GpuActivationTest, Agree) {
  for (const Activation activation : {Activation::silu, Activation::gelu}) {
    for (const bool gated : {true, false}) {
      for (DType dtype : storage_types) {
        for (std::int64_t n : {0, 1, 9, 4096, 8195}) {
          for (double stddev : {1.0, 30.0}) {
            for (std::int64_t skip : {0, 3}) {
              forget();
              const std::string what = fmt::format("{} elements of {}, stddev {}, activation {}", n, name_of(dtype),
                                                   stddev, static_cast<int>(activation));
              const Both gate = random({n}, dtype, 1, stddev, skip), up = random({n}, dtype, 2, 1, skip);
              const Both dy = random({n}, dtype, 3, 1, skip), y = output({n}, dtype, skip);
              const Both dgate = output({n}, dtype, skip), dup = output({n}, dtype);
              const auto if_gated = [&](const TensorView& x) { return gated ? x : TensorView{}; };
              on_both([&](Stream& stream, auto at) {
                activation_forward(stream, activation, at(y), at(gate), if_gated(at(up)));
                activation_backward(stream, activation, at(dgate), if_gated(at(dup)), at(dy), at(gate),
                                    if_gated(at(up)));
              });
              expect_agrees(y, what);
              expect_agrees(dgate, what);
              if (gated) expect_agrees(dup, what);
              on_both([&](Stream& stream, auto at) {
                const TensorView factor = if_gated(at(up));
                activation_backward(stream, activation, at(gate), factor, at(dy), at(gate), factor, at(dy));
              });
              EXPECT_EQ(on_host(gate.gpu), on_host(dgate.gpu)) << what;
              EXPECT_TRUE(!gated || on_host(up.gpu) == on_host(dup.gpu)) << what;
              EXPECT_EQ(on_host(dy.gpu), on_host(y.gpu)) << what << ": backward makes y to the same bits";
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace ringtrain::testing
