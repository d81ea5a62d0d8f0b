#include "kernels/attention_sinks.h"

#include <algorithm>
#include <cmath>

#include "kernels/check.h"
#include "kernels/cpu/loops.h"
#include "kernels/cuda/cuda_kernels.h"

namespace ringtrain {

void attention_sinks_finalize(Stream& stream, const AttentionState& state, const TensorView& out, const TensorView& lse,
                              const ConstTensorView& sinks) {
  ensure(out.shape.rank() == 4, "attention out is [B, T, H, D]");
  const std::int64_t B = out.dim(0), T = out.dim(1), H = out.dim(2), D = out.dim(3);
  const DType sums = accumulator(out.dtype);
  check_tensor(state.o, out.shape, sums, "attention state o is shaped as out");
  check_tensor(state.m, {B, H, T}, sums, "attention state m is [B, H, T]");
  check_tensor(state.l, {B, H, T}, sums, "attention state l is [B, H, T]");
  check_tensor(lse, {B, H, T}, sums, "attention lse is [B, H, T]");
  check_tensor(sinks, {H}, out.dtype, "attention sinks are [H]");
  if (stream.on_cuda()) return cuda::attention_sinks_finalize(stream, state, out, lse, sinks);
  dispatch_dtype(out.dtype, [&]<class S, class A>() {
    const A *const o = state.o.as<A>(), *const m = state.m.as<A>(), *const l = state.l.as<A>();
    const S* const sinks_data = sinks.as<S>();
    S* const finished = out.as<S>();
    A* const logsumexps = lse.as<A>();
    cpu::for_rows(stream.pool(), B * T, H * D, [=](std::int64_t token) {
      const std::int64_t b = token / T, t = token % T;
      for (std::int64_t h = 0; h < H; ++h) {
        const std::int64_t row = (b * H + h) * T + t;
        const A sink = cpu::widened(sinks_data[h]);
        const A largest = std::max(m[row], sink), shrink = std::exp(m[row] - largest);
        const A sum = l[row] * shrink + std::exp(sink - largest), factor = shrink / sum;
        logsumexps[row] = largest + std::log(sum);
        cpu::for_vectors<A>((token * H + h) * D, (token * H + h + 1) * D,
                            [=](auto at) { at.put(finished, at(o) * factor); });
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
  dispatch_dtype(sinks.dtype, [&]<class S, class A>() {
    const A *const l = lse.as<A>(), *const d = delta.as<A>();
    const S* const sinks_data = sinks.as<S>();
    A* const gradient = dsinks.as<A>();
    cpu::for_rows(stream.pool(), H, B * T, [=](std::int64_t h) {
      const auto sink = static_cast<double>(cpu::widened(sinks_data[h]));
      double sum = 0;
      for (std::int64_t b = 0; b < B; ++b) {
        for (std::int64_t row = (b * H + h) * T; row < (b * H + h + 1) * T; ++row) {
          sum += std::exp(sink - static_cast<double>(l[row])) * static_cast<double>(d[row]);
        }
      }
      gradient[h] -= static_cast<A>(sum);
    });
  });
}

}  // namespace ringtrain
