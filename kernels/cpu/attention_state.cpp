// The passes that only touch the state: reset, finish, and backward's delta. Tokens are independent.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/attention_cpu.h"
#include "kernels/cpu/loops.h"

namespace ringtrain::cpu {

namespace {

/// Returns the sum over d of x[d] * y[d], in double, in eight partial sums.
template <class T>
double dot(const T* x, const T* y, std::int64_t D) {
  constexpr int strands = 8;
  double sum[strands] = {};
  std::int64_t d = 0;
  for (; d + strands <= D; d += strands) {
    for (int i = 0; i < strands; ++i) {
      sum[i] += static_cast<double>(widened(x[d + i])) * static_cast<double>(widened(y[d + i]));
    }
  }
  for (; d < D; ++d) sum[0] += static_cast<double>(widened(x[d])) * static_cast<double>(widened(y[d]));
  return ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
}

}  // namespace

void attention_reset(ThreadPool& pool, const AttentionState& state) {
  dispatch_float(state.o.dtype, [&]<class T>() {
    const std::int64_t B = state.o.dim(0), Tq = state.o.dim(1), H = state.o.dim(2), D = state.o.dim(3);
    T *o = state.o.as<T>(), *m = state.m.as<T>(), *l = state.l.as<T>();
    for_rows(pool, B * Tq, H * D, [&](std::int64_t token) {
      const std::int64_t b = token / Tq, t = token % Tq;
      std::fill_n(o + token * H * D, H * D, T{0});
      for (std::int64_t h = 0; h < H; ++h) {
        m[(b * H + h) * Tq + t] = -std::numeric_limits<T>::infinity();
        l[(b * H + h) * Tq + t] = 0;
      }
    });
  });
}

void attention_finalize(ThreadPool& pool, const AttentionState& state, const TensorView& out_view,
                        const TensorView& lse_view, const ConstTensorView& sinks_view) {
  dispatch_dtype(out_view.dtype, [&]<class S, class A>() {
    constexpr A infinity = std::numeric_limits<A>::infinity();
    const std::int64_t B = state.o.dim(0), Tq = state.o.dim(1), H = state.o.dim(2), D = state.o.dim(3);
    const S* const sinks = sinks_view.empty() ? nullptr : sinks_view.as<S>();
    S* out = out_view.as<S>();
    A* lse = lse_view.as<A>();
    const A *o = state.o.as<A>(), *m = state.m.as<A>(), *l = state.l.as<A>();
    for_rows(pool, B * Tq, H * D, [&](std::int64_t token) {
      const std::int64_t b = token / Tq, t = token % Tq;
      for (std::int64_t h = 0; h < H; ++h) {
        const std::int64_t row = (b * H + h) * Tq + t;
        // Without a sink, shrink is exactly 1, and nothing is added to l.
        const A sink = sinks == nullptr ? -infinity : widened(sinks[h]);
        const A largest = std::max(m[row], sink), base = largest == -infinity ? A{0} : largest;
        const A shrink = std::exp(m[row] - base), sum = l[row] * shrink + std::exp(sink - base);
        lse[row] = sum == 0 ? -infinity : base + std::log(sum);
        const A factor = sum == 0 ? A{0} : shrink / sum;
        const std::int64_t begin = (token * H + h) * D;
        for_vectors<A>(begin, begin + D, [=](auto at) { at.put(out, at(o) * factor); });
      }
    });
  });
}

void attention_delta(ThreadPool& pool, const TensorView& delta_view, const ConstTensorView& dout_view,
                     const ConstTensorView& out_view) {
  dispatch_dtype(out_view.dtype, [&]<class S, class A>() {
    const std::int64_t B = out_view.dim(0), Tq = out_view.dim(1), H = out_view.dim(2), D = out_view.dim(3);
    A* delta = delta_view.as<A>();
    const S *dout = dout_view.as<S>(), *out = out_view.as<S>();
    for_rows(pool, B * Tq, H * D, [&](std::int64_t token) {
      const std::int64_t b = token / Tq, t = token % Tq;
      for (std::int64_t h = 0; h < H; ++h) {
        const std::int64_t row = (token * H + h) * D;
        delta[(b * H + h) * Tq + t] = static_cast<A>(dot(dout + row, out + row, D));
      }
    });
  });
}

}  // namespace ringtrain::cpu
