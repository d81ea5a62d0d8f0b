#include "kernels/attention_sinks.h"

#include <algorithm>
#include <cmath>

#include "kernels/check.h"
#include "kernels/cpu/loops.h"
#include "kernels/cuda/cuda_kernels.h"

namespace ringtrain {

namespace {

/// Returns log(e^x + e^y), y finite.
template <class T>
T log_of_both(T x, T y) {
  const T largest = std::max(x, y);
  return largest + std::log(std::exp(x - largest) + std::exp(y - largest));
}

}  // namespace

void attention_sinks_forward(Stream& stream, const TensorView& out, const TensorView& lse,
                             const ConstTensorView& sinks) {
  ensure(out.shape.rank() == 4, "attention out is [B, T, H, D]");
  const std::int64_t B = out.dim(0), T = out.dim(1), H = out.dim(2), D = out.dim(3);
  check_tensor(lse, {B, H, T}, accumulator(out.dtype), "attention lse is [B, H, T]");
  check_tensor(sinks, {H}, out.dtype, "attention sinks are [H]");
  if (stream.on_cuda()) return cuda::attention_sinks_forward(stream, out, lse, sinks);
  dispatch_float(out.dtype, [&]<class E>() {
    E *const o = out.as<E>(), *const l = lse.as<E>();
    const E* const sink = sinks.as<E>();
    cpu::for_rows(stream.pool(), B * T, H * D, [=](std::int64_t token) {
      const std::int64_t b = token / T, t = token % T;
      for (std::int64_t h = 0; h < H; ++h) {
        E& row = l[(b * H + h) * T + t];
        const E all = log_of_both(row, sink[h]), factor = std::exp(row - all);
        row = all;
        cpu::for_vectors<E>((token * H + h) * D, (token * H + h + 1) * D, [=](auto at) { at.put(o, at(o) * factor); });
      }
    });
  });
}

void attention_sinks_backward(Stream& stream, const TensorView& dsinks, const ConstTensorView& lse,
                              const ConstTensorView& delta, const ConstTensorView& sinks) {
  ensure(lse.shape.rank() == 3, "attention lse is [B, H, T]");
  const std::int64_t B = lse.dim(0), H = lse.dim(1), T = lse.dim(2);
  check_tensor(delta, lse.shape, lse.dtype, "attention delta is [B, H, T]");
  check_tensor(dsinks, {H}, lse.dtype, "the gradient of attention sinks is [H]");
  check_tensor(sinks, {H}, sinks.dtype, "attention sinks are [H]");
  ensure(accumulator(sinks.dtype) == lse.dtype, "attention lse has the accumulator of the sinks' dtype");
  if (stream.on_cuda()) return cuda::attention_sinks_backward(stream, dsinks, lse, delta, sinks);
  dispatch_float(lse.dtype, [&]<class E>() {
    const E *const l = lse.as<E>(), *const d = delta.as<E>(), *const sink = sinks.as<E>();
    E* const gradient = dsinks.as<E>();
    cpu::for_rows(stream.pool(), H, B * T, [=](std::int64_t h) {
      double sum = 0;
      for (std::int64_t b = 0; b < B; ++b) {
        for (std::int64_t row = (b * H + h) * T; row < (b * H + h + 1) * T; ++row) {
          sum += std::exp(static_cast<double>(sink[h]) - static_cast<double>(l[row])) * static_cast<double>(d[row]);
        }
      }
      gradient[h] -= static_cast<E>(sum);
    });
  });
}

}  // namespace ringtrain
