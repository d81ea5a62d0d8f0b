// Compares RMSNorm and LayerNorm on the GPU with the CPU's in double: widths of less than a pack, of a warp, of several
// warps, with several packs per thread, and more than registers hold; unaligned memory; gradients that add, and that
// replace dy.
#include "kernels/norm.h"

#include "tests/support/cuda_harness.h"

namespace ringtrain::testing {
namespace {

constexpr double eps = 1e-5;

class GpuNormTest : public GpuKernelTest {
 protected:
  struct Case {
    DType dtype;
    std::int64_t T, C;
    bool layer;
    std::int64_t skip = 0;
    double stddev = 1, offset = 0, tolerance = 1e-5;
    bool forward_only = false;
  };

  void expect_agreement(const Case& c) {
    forget();
    const std::string what = fmt::format("{} of {} x {} {}, {} skipped, stddev {}", c.layer ? "LayerNorm" : "RMSNorm",
                                         c.T, c.C, name_of(c.dtype), c.skip, c.stddev);
    const Shape shape{c.T, c.C};
    std::vector<double> numbers = random_vector<double>(c.T * c.C, 1, c.stddev);
    for (double& x : numbers) x += c.offset;
    const Both x = values(numbers, shape, c.dtype, c.skip);
    const Both w = random({c.C}, c.dtype, 2, 1, c.skip), b = random({c.C}, c.dtype, 3, 1, c.skip);
    const Both y = output(shape, c.dtype, c.skip);
    const Both mean = output({c.T}, DType::float32), rstd = output({c.T}, DType::float32);
    const auto of_layer = [&](const TensorView& tensor) { return c.layer ? tensor : TensorView{}; };
    on_both([&](Stream& stream, auto at) {
      norm_forward(stream, at(y), of_layer(at(mean)), at(rstd), at(x), at(w), of_layer(at(b)), eps);
    });
    expect_agrees(y, what + ": y", c.tolerance);
    expect_agrees(rstd, what + ": rstd", c.tolerance);
    if (c.layer) expect_agrees(mean, what + ": mean");
    if (c.forward_only) return;

    const Both dy = random(shape, c.dtype, 4, 1, c.skip), dx = output(shape, c.dtype, c.skip);
    const Both sum = random(shape, c.dtype, 5, 1 / c.stddev, c.skip);
    const Both dw = random({c.C}, DType::float32, 6), db = random({c.C}, DType::float32, 7);
    const auto backward = [&](Stream& stream, auto at, const Both& to, bool accumulate) {
      norm_backward(stream, at(to), at(dw), of_layer(at(db)), at(dy), at(x), at(w), of_layer(at(mean)), at(rstd),
                    accumulate);
    };
    on_both([&](Stream& stream, auto at) {
      backward(stream, at, dx, false);
      backward(stream, at, sum, true);
    });
    // For one element, RMSNorm's dx is the small difference of two similar numbers.
    if (c.C > 1) expect_agrees(dx, what + ": dx", c.tolerance);
    expect_agrees(sum, what + ": dx added", c.tolerance);
    expect_agrees(dw, what + ": dw", c.tolerance);
    if (c.layer) expect_agrees(db, what + ": db");
    on_gpu([&] {
      backward(
          gpu(), [](const Both& both) { return both.gpu; }, dy, false);
    });
    EXPECT_TRUE(on_host(dy.gpu) == on_host(dx.gpu)) << what << ": dx in the memory of dy";
  }
};

TEST_F(GpuNormTest, AgreesForAnyWidth) {
  for (DType dtype : storage_types) {
    for (bool layer : {false, true}) {
      for (std::int64_t C : {1, 8, 17, 64, 257, 1032}) {
        for (std::int64_t T : {0, 1, 3, 21}) expect_agreement({dtype, T, C, layer});
      }
      expect_agreement({dtype, 5, 64, layer, 1});
    }
  }
}

// One to four packs per thread, then single elements: backward beyond 8192, and also forward.
TEST_F(GpuNormTest, WideRows) {
  for (DType dtype : storage_types) {
    for (bool layer : {false, true}) {
      for (std::int64_t C : {2056, 4104, 8200}) expect_agreement({dtype, 2, C, layer});
      expect_agreement({.dtype = dtype, .T = 1, .C = 40008, .layer = layer, .forward_only = emulated});
    }
  }
}

TEST_F(GpuNormTest, ManyTokens) {
  if (emulated) GTEST_SKIP() << "too long without a GPU";
  for (DType dtype : storage_types) {
    for (bool layer : {false, true}) {
      expect_agreement({dtype, 513 * 8 + 3, 16, layer, 1});  // more than 512 chunks of 8 tokens: longer ones
      expect_agreement({dtype, 20000, 64, layer});
      expect_agreement({dtype, 2000, 2048, layer});
    }
  }
}

TEST_F(GpuNormTest, RowsOfAnySize) {
  for (DType dtype : storage_types) {
    for (bool layer : {false, true}) {
      expect_agreement({dtype, 3, 72, layer, 0, 1e-6});
      expect_agreement({dtype, 3, 72, layer, 0, 1e6});
    }
  }
  // Far from 0: the mean itself is a float32.
  expect_agreement({DType::float32, 5, 104, true, 0, 1, 1000, 1e-3});
}

}  // namespace
}  // namespace ringtrain::testing
