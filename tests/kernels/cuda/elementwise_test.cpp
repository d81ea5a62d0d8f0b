// Compares flat kernels on the GPU with the CPU's in double: every dtype, sizes around a pack and around a block,
// memory that is not aligned to a pack.
#include "kernels/elementwise.h"

#include "tests/support/cuda_harness.h"

namespace ringtrain::testing {
namespace {

class GpuElementwiseTest : public GpuKernelTest {};

constexpr DType all_types[] = {DType::float32, DType::bfloat16, DType::float64};
constexpr std::int64_t sizes[] = {0, 1, 7, 8, 257, 4099, 9001};

TEST_F(GpuElementwiseTest, FillScaleAndAdd) {
  for (DType dtype : all_types) {
    for (std::int64_t n : sizes) {
      for (std::int64_t skip : {0, 1, 4}) {
        const std::string what = fmt::format("{} elements of {}, {} skipped", n, name_of(dtype), skip);
        const Both filled = output({n}, dtype, skip);
        const Both y = random({n}, dtype, 1, 1, skip), x = random({n}, dtype, 2, 1, skip / 2);
        const Both scaled = random({n}, dtype, 3, 1, skip);
        on_both([&](Stream& stream, auto at) {
          fill(stream, at(filled), -2.625);
          add(stream, at(y), at(x));
          if (dtype != DType::float64) scale(stream, at(scaled), 0.375);  // no layer on a GPU scales other dtypes
        });
        EXPECT_EQ(on_host(filled.gpu), std::vector<double>(static_cast<std::size_t>(n), -2.625)) << what;
        expect_agrees(y, what);
        expect_agrees(scaled, what + ", scaled");
      }
    }
  }
}

TEST_F(GpuElementwiseTest, AddsFloat32ToBFloat16AndRoundsOnce) {
  for (std::int64_t n : sizes) {
    const Both y = random({n}, DType::bfloat16, 1, 1, n % 5), x = random({n}, DType::float32, 2, 1, n % 3);
    std::vector<double> sum = on_host(y.gpu), added = on_host(x.gpu);
    on_gpu([&] { add(gpu(), y.gpu, x.gpu); });
    for (std::size_t i = 0; i < sum.size(); ++i)
      sum[i] = as_held(as_held(sum[i] + added[i], DType::float32), DType::bfloat16);
    EXPECT_EQ(on_host(y.gpu), sum) << n;
  }
}

TEST_F(GpuElementwiseTest, CopyAndConvert) {
  for (std::int64_t n : sizes) {
    for (std::int64_t skip : {0, 1, 4}) {
      const Both wide = random({n}, DType::float32, 1, 1, skip), narrow = random({n}, DType::bfloat16, 2, 1, skip);
      const Both to_narrow = output({n}, DType::bfloat16, skip), to_wide = output({n}, DType::float32, skip);
      const Both copied = output({n}, DType::float32, 3);
      std::vector<float> here(n), back = here;
      on_gpu([&] {
        convert(gpu(), to_narrow.gpu, wide.gpu);
        convert(gpu(), to_wide.gpu, narrow.gpu);
        copy(gpu(), view_of(here), wide.gpu);  // to the host and back, then on the device
        gpu().synchronize();
        convert(gpu(), copied.gpu, view_of(here));
        copy(gpu(), view_of(back), copied.gpu);
        gpu().synchronize();
      });
      EXPECT_EQ(converted<double>(here), on_host(wide.gpu));
      EXPECT_EQ(back, here);
      EXPECT_EQ(on_host(to_wide.gpu), on_host(narrow.gpu));
      std::vector<double> rounded = on_host(wide.gpu);
      for (double& x : rounded) x = as_held(x, DType::bfloat16);
      EXPECT_EQ(on_host(to_narrow.gpu), rounded) << n;
      on_gpu([&] { copy(gpu(), copied.gpu, to_wide.gpu); });
      EXPECT_EQ(on_host(copied.gpu), on_host(to_wide.gpu));
    }
  }
}

TEST_F(GpuElementwiseTest, RoundingTakesTiesToEvenAndKeepsWhatIsNoNumber) {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::vector<double> x = {1 + 0x1p-8, 1 + 0x3p-8, -1 - 0x1p-8, 1 + 0x1.0002p-8,
                                 3.4e38,     infinity,   -infinity,   -0.0};
  const std::vector<double> expected = {1, 1 + 0x1p-6, -1, 1 + 0x1p-7, infinity, infinity, -infinity, 0};
  const Both from = values(x, {8}, DType::float32), to = output({8}, DType::bfloat16);
  const Both nan = output({3}, DType::float32), to_nan = random({3}, DType::bfloat16, 1);
  on_gpu([&] {
    convert(gpu(), to.gpu, from.gpu);
    convert(gpu(), to_nan.gpu, nan.gpu);
  });
  EXPECT_EQ(on_host(to.gpu), expected);
  for (double value : on_host(to_nan.gpu)) EXPECT_TRUE(std::isnan(value));
}

TEST_F(GpuElementwiseTest, SumOfSquares) {
  std::vector<std::int64_t> lengths = {0, 1, 7, 4095, 3 * 4096 + 5};
  if (!emulated) lengths.push_back(2048 * 4096 + 77);  // more than a grain per piece
  for (DType dtype : all_types) {
    for (std::int64_t n : lengths) {
      const Both x = random({n}, dtype, 1, 3, n % 2), sum = values({0.75}, {1}, DType::float64);
      const Both replaced = output({1}, DType::float64);
      on_both([&](Stream& stream, auto at) {
        sum_of_squares(stream, at(sum), at(x), true);
        sum_of_squares(stream, at(replaced), at(x), false);
      });
      expect_agrees(sum, name_of(dtype), 1e-13);
      expect_agrees(replaced, name_of(dtype), 1e-13);
    }
  }
}

TEST_F(GpuElementwiseTest, NormalsAreThoseOfTheCpu) {
  const std::int64_t n = (std::int64_t{1} << 20) + 5000;  // more than is transferred at once
  std::vector<float> expected(n);
  fill_normal(cpu(), view_of(expected), 0.02, 7, 1000);
  for (DType dtype : storage_types) {
    const Both x = output({n}, dtype);
    on_gpu([&] { fill_normal(gpu(), x.gpu, 0.02, 7, 1000); });
    std::vector<double> held = converted<double>(expected);
    for (double& value : held) value = as_held(value, dtype);
    EXPECT_TRUE(on_host(x.gpu) == held) << name_of(dtype);
  }
}

#if defined(__SANITIZE_ADDRESS__)
TEST_F(GpuElementwiseTest, AnEmulatedGpusTensorEndsWhereItEnds) {
  Allocator allocator(Device::cuda(0));
  const Tensor x = allocator.make(Tag::workspace, "x", DType::float32, {5});
  fill(gpu(), x, 1);
  gpu().synchronize();
  TensorView beyond = x;
  beyond.shape = {6};
  EXPECT_DEATH(
      {
        fill(gpu(), beyond, 1);
        gpu().synchronize();
      },
      "heap-buffer-overflow");
}
#endif

}  // namespace
}  // namespace ringtrain::testing
