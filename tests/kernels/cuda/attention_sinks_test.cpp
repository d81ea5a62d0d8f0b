// Compares attention sinks on the GPU with the CPU's in double: rows of every shape, rows without a key, sinks of any
// size.
#include "kernels/attention_sinks.h"

#include "tests/support/cuda_harness.h"

namespace ringtrain::testing {
namespace {

class GpuAttentionSinksTest : public GpuKernelTest {};

TEST_F(GpuAttentionSinksTest, AgreeForAnyShape) {
  for (const DType dtype : storage_types) {
    for (const Shape& shape : {Shape{1, 1, 1, 1}, Shape{2, 37, 3, 20}, Shape{1, 130, 8, 64}, Shape{2, 0, 3, 8}}) {
      forget();
      const std::string what = name_of(dtype);
      const std::int64_t B = shape[0], T = shape[1], H = shape[2];
      std::vector<double> logsumexp = random_vector<double>(B * H * T, 1, 3);
      for (std::size_t i = 0; i < logsumexp.size(); i += 7) logsumexp[i] = -std::numeric_limits<double>::infinity();
      std::vector<double> rows = random_vector<double>(shape.numel(), 2);
      for (std::int64_t row = 0; row < B * T * H; ++row) {  // a row without a key is 0
        const std::int64_t b = row / H / T, t = row / H % T, h = row % H;
        if (!std::isinf(logsumexp[static_cast<std::size_t>((b * H + h) * T + t)])) continue;
        std::fill_n(rows.begin() + row * shape[3], shape[3], 0.0);
      }
      std::vector<double> sums;
      for (const double m : logsumexp) sums.push_back(std::isinf(m) ? 0 : 1.5);
      const Both o = values(rows, shape, DType::float32), m = values(logsumexp, {B, H, T}, DType::float32);
      const Both l = values(sums, {B, H, T}, DType::float32), out = output(shape, dtype);
      const Both sinks = values(random_vector<double>(H, 3, 4), {H}, dtype);
      const Both delta = random({B, H, T}, DType::float32, 4), gradient = random({H}, DType::float32, 5);
      on_both([&](Stream& stream, auto at) {
        attention_finalize(stream, {at(o), at(m), at(l)}, at(out), at(m), at(sinks));
        attention_sinks_backward(stream, at(gradient), at(m), at(delta), at(sinks));
      });
      expect_agrees(out, what);
      expect_agrees(m, what);
      expect_agrees(gradient, what);
    }
  }
}

}  // namespace
}  // namespace ringtrain::testing
