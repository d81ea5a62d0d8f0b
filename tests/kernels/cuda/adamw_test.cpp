// Compares AdamW on the GPU with the CPU's in double, for several steps: more slices than one launch takes, with odd
// sizes and odd offsets; rounded weights are the weights, rounded.
#include "kernels/adamw.h"

#include "kernels/adamw_moments.h"
#include "tests/support/cuda_harness.h"

namespace ringtrain::testing {
namespace {

class GpuAdamW : public GpuKernelTest, public ::testing::WithParamInterface<DType> {};
class GpuAdamWTest : public GpuKernelTest {};

TEST_P(GpuAdamW, ManySlicesOverSteps) {
  struct Slice {
    Both w, m, v, g, rounded;
    double decay;
  };
  std::vector<Slice> slices;
  const std::int64_t sizes[] = {0, 1, 5, 64, 2048, 2049, 4500, 127};
  for (std::uint64_t i = 0; i < 130; ++i) {
    const std::int64_t n = i == 77 ? 10000 : sizes[i % 8], skip = i % 3 == 0 ? static_cast<std::int64_t>(i % 5) : 0;
    Slice slice{random({n}, DType::float32, 4 * i, 1, skip),
                random({n}, DType::float32, 4 * i + 1, 0.1, skip),
                random({n}, DType::float32, 4 * i + 2, 0.1, skip),
                random({n}, GetParam(), 4 * i + 3, 1, skip),
                i % 2 == 0 ? output({n}, DType::bfloat16, skip) : Both{},
                i % 4 == 0 ? 0.0 : 0.1};
    for (double* v = slice.v.cpu.as<double>(); v != slice.v.cpu.as<double>() + n; ++v) *v = std::abs(*v);
    slice.v =
        values(std::vector<double>(slice.v.cpu.as<double>(), slice.v.cpu.as<double>() + n), {n}, DType::float32, skip);
    slices.push_back(slice);
  }
  for (std::int64_t step = 1; step <= 3; ++step) {
    const AdamW hyper{.lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .step = step, .gradient_scale = 0.7};
    on_both([&](Stream& stream, auto at) {
      std::vector<AdamWSlice> views;
      for (const Slice& slice : slices) {
        // On a CPU weights are not rounded.
        const TensorView rounded = stream.on_cuda() ? slice.rounded.gpu : TensorView{};
        views.push_back({at(slice.w), at(slice.m), at(slice.v), at(slice.g), rounded, slice.decay});
      }
      adamw_update(stream, views, hyper);
    });
  }
  for (const Slice& slice : slices) {
    const std::string what = fmt::format("a slice of {}", slice.w.gpu.numel());
    expect_agrees(slice.w, what);
    expect_agrees(slice.m, what);
    expect_agrees(slice.v, what);
    if (slice.rounded.gpu.empty()) continue;
    std::vector<double> rounded = on_host(slice.w.gpu);
    for (double& x : rounded) x = as_held(x, DType::bfloat16);
    EXPECT_EQ(on_host(slice.rounded.gpu), rounded) << what;
  }
}

INSTANTIATE_TEST_SUITE_P(Gradients, GpuAdamW, ::testing::Values(DType::float32, DType::bfloat16),
                         [](const auto& of_type) { return name_of(of_type.param); });

// The terms are exact in float32, so moments differ from a CPU's only if they are rounded in another way.
TEST_F(GpuAdamWTest, MomentsInBFloat16HaveTheBitsOfACpu) {
  const AdamW hyper{.lr = 0.01, .beta1 = 0.5, .beta2 = 0.5, .eps = 1e-8, .step = 1, .gradient_scale = 1};
  for (const auto& [n, skip] : {std::pair<std::int64_t, std::int64_t>{4500, 0}, {2051, 3}, {1, 0}}) {
    forget();
    const Both first = random({n}, DType::bfloat16, 1, 1, skip);
    std::vector<double> x = on_host(first.gpu), m, v;
    const Both second = values(x, {n}, DType::bfloat16, skip);
    const Both w = values(x, {n}, DType::float32, skip), g = values(x, {n}, DType::float32, skip);
    const AdamWSlice slice{w.gpu, first.gpu, second.gpu, g.gpu, {}, 0.1, 0xfffffff0U};
    on_gpu([&] { adamw_update(gpu(), {&slice, 1}, hyper); });
    for (std::uint32_t number = number_of(slice.first_element, hyper.seed, hyper.step); const double each : x) {
      const auto of = static_cast<float>(each);
      BFloat16 m_of_element, v_of_element;
      store_moments(m_of_element, v_of_element, of, 0.5F * of + 0.5F * of * of, number++);
      m.push_back(m_of_element.value()), v.push_back(v_of_element.value());
    }
    EXPECT_EQ(on_host(first.gpu), m) << n;
    EXPECT_EQ(on_host(second.gpu), v) << n;
  }
}

TEST_F(GpuAdamWTest, ExactlyOneLaunchAndNone) {
  const AdamW hyper{.lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .step = 1, .gradient_scale = 1};
  const Both m = values(std::vector<double>(60), {60}, DType::float32);
  const Both v = values(std::vector<double>(60), {60}, DType::float32);
  const Both w = random({60}, DType::float32, 1), g = random({60}, DType::float32, 2);
  on_both([&](Stream& stream, auto at) {
    std::vector<AdamWSlice> views;  // as many as one launch takes
    for (std::int64_t i = 0; i < 60; ++i) {
      views.push_back(
          {at(w).flat(i, i + 1), at(m).flat(i, i + 1), at(v).flat(i, i + 1), at(g).flat(i, i + 1), {}, 0.1});
    }
    adamw_update(stream, views, hyper);
    adamw_update(stream, {}, hyper);
  });
  expect_agrees(w, "w");
}

}  // namespace
}  // namespace ringtrain::testing
