// RMSNorm and LayerNorm on the CPU. Rows are independent; parameter gradients are cut by columns, so that each of their
// elements adds the tokens in order. All sums use double.
#include "kernels/norm.h"

#include <cmath>
#include <initializer_list>

#include "kernels/check.h"
#include "kernels/cpu/loops.h"
#include "kernels/cuda/cuda_kernels.h"

namespace ringtrain {

using cpu::Vector;

namespace {

/// Tensors of a call, by their names in the header.
struct Named {
  ConstTensorView tensor;
  const char* name;
};
using AllNamed = std::initializer_list<Named>;

/// Checks x [T, C] and the other tensors: rows of the same shape, weights [C], statistics [T], and gradients of weights
/// [C], which are empty for frozen weights.
void check_call(const Stream& stream, const CallerLine& line, const ConstTensorView& x, AllNamed rows, AllNamed weights,
                AllNamed statistics, AllNamed gradients = {}) {
  check_number(stream, x, "x", line);
  check_argument(stream, x, "x", {{"T", any_size}, {"C", any_size}}, x.dtype, line);
  const std::int64_t T = x.dim(0), C = x.dim(1);
  const DType sums = accumulator(x.dtype);
  for (const auto& [y, name] : rows) check_argument(stream, y, name, {{"T", T}, {"C", C}}, x.dtype, line);
  for (const auto& [w, name] : weights) check_argument(stream, w, name, {{"C", C}}, x.dtype, line);
  for (const auto& [rstd, name] : statistics) check_argument(stream, rstd, name, {{"T", T}}, sums, line);
  for (const auto& [dw, name] : gradients) {
    if (!dw.empty()) check_argument(stream, dw, name, {{"C", C}}, sums, line);
  }
}

/// LayerNorm, or RMSNorm, which has no mean and no b, and whose w is relative to `offset`.
template <bool layer>
void forward(Stream& stream, const TensorView& y, const TensorView& mean, const TensorView& rstd,
             const ConstTensorView& x, const ConstTensorView& w, const ConstTensorView& b, double eps, double offset) {
  dispatch_dtype(x.dtype, [&, T = x.dim(0), C = x.dim(1)]<class S, class A>() {
    const auto from = static_cast<A>(offset);
    S* const y_data = y.as<S>();
    A *const mean_data = layer ? mean.as<A>() : nullptr, *const rstd_data = rstd.as<A>();
    const S *const x_data = x.as<S>(), *const w_data = w.as<S>(), *const b_data = layer ? b.as<S>() : nullptr;
    cpu::for_rows(stream.pool(), T, C, [=](std::int64_t t) {
      const S* const row = x_data + t * C;  // [C]
      S* const to = y_data + t * C;         // [C]
      const auto width = static_cast<double>(C);
      const double average = layer ? cpu::sum_in_double(0, C, [=](auto at) { return at(row); }) / width : 0;
      // The second pass over the row (still in L1) keeps rows with a large mean exact.
      const double squares = cpu::sum_in_double(0, C, [=](auto at) {
        const auto value = at(row) - average;
        return value * value;
      });
      const auto m = static_cast<A>(average), r = static_cast<A>(1 / std::sqrt(squares / width + eps));
      if (layer) mean_data[t] = m;
      rstd_data[t] = r;
      cpu::for_vectors<A>(0, C, [=](auto at) {
        if constexpr (layer) {
          at.put(to, (at(row) - m) * r * at(w_data) + at(b_data));
        } else {
          at.put(to, at(row) * r * (from + at(w_data)));
        }
      });
    });
  });
}

/// With n = (x - mean) rstd (the normalized row) and g = dy w: dx = rstd (g - mean(g) - n mean(g n)), dw = sum over
/// tokens of dy n, db = sum of dy. RMSNorm has no means, and g = dy (offset + w).
template <bool layer>
void backward(Stream& stream, const TensorView& dx, const TensorView& dw, const TensorView& db,
              const ConstTensorView& dy, const ConstTensorView& x, const ConstTensorView& w,
              const ConstTensorView& mean, const ConstTensorView& rstd, bool accumulate, double offset) {
  dispatch_dtype(x.dtype, [&, T = x.dim(0), C = x.dim(1)]<class S, class A>() {
    S* const dx_data = dx.as<S>();
    const S *const dy_data = dy.as<S>(), *const x_data = x.as<S>(), *const w_data = w.as<S>();
    const A *const mean_data = layer ? mean.as<A>() : nullptr, *const rstd_data = rstd.as<A>();
    const auto weight = [=](auto at) {
      if constexpr (layer) return at(w_data);
      if constexpr (!layer) return static_cast<A>(offset) + at(w_data);
    };
    const auto mean_of = [=](std::int64_t t) { return layer ? mean_data[t] : A{0}; };
    // dw and db are computed before dx, because dx may be the memory of dy.
    if (!dw.empty()) {
      cpu::sum_rows_into(stream.pool(), T, C, dw.as<A>(), [=](std::int64_t t, auto at) {
        return at(dy_data + t * C) * (at(x_data + t * C) - static_cast<double>(mean_of(t))) *
               static_cast<double>(rstd_data[t]);
      });
    }
    if (!db.empty()) {
      cpu::sum_rows_into(stream.pool(), T, C, db.as<A>(), [=](std::int64_t t, auto at) { return at(dy_data + t * C); });
    }
    cpu::for_rows(stream.pool(), T, C, [=](std::int64_t t) {
      const S *const row = x_data + t * C, *const g = dy_data + t * C;  // [C]
      S* const to = dx_data + t * C;                                    // [C]
      const A m = mean_of(t), r = rstd_data[t];
      const double sum = layer ? cpu::sum_in_double(0, C, [=](auto at) { return at(g) * weight(at); }) : 0;
      const double dot =
          cpu::sum_in_double(0, C, [=](auto at) { return at(g) * weight(at) * (at(row) - static_cast<double>(m)); });
      const auto mean_gradient = static_cast<A>(sum / static_cast<double>(C));
      const auto slope = static_cast<A>(dot * r * r / static_cast<double>(C));
      cpu::for_vectors<A>(0, C, [=](auto at) {
        const Vector<A> d = r * (at(g) * weight(at) - mean_gradient - (at(row) - m) * slope);
        at.put(to, accumulate ? at(to) + d : d);
      });
    });
  });
}

}  // namespace

void norm_forward(Stream& stream, const TensorView& y, const TensorView& mean, const TensorView& rstd,
                  const ConstTensorView& x, const ConstTensorView& w, const ConstTensorView& b, double eps,
                  double offset, const CallerLine& line) {
  check_call(stream, line, x, {{y, "y"}}, {{w, "w"}}, {{rstd, "rstd"}});
  const bool layer = is_given(mean) || is_given(b);
  if (layer) check_call(stream, line, x, {}, {{b, "b"}}, {{mean, "mean"}});
  if (stream.on_cuda()) return cuda::norm_forward(stream, y, mean, rstd, x, w, b, eps, offset);
  (layer ? forward<true> : forward<false>)(stream, y, mean, rstd, x, w, b, eps, offset);
}

void norm_backward(Stream& stream, const TensorView& dx, const TensorView& dw, const TensorView& db,
                   const ConstTensorView& dy, const ConstTensorView& x, const ConstTensorView& w,
                   const ConstTensorView& mean, const ConstTensorView& rstd, bool accumulate, double offset,
                   const CallerLine& line) {
  check_call(stream, line, x, {{dx, "dx"}, {dy, "dy"}}, {{w, "w"}}, {{rstd, "rstd"}}, {{dw, "dw"}, {db, "db"}});
  const bool layer = is_given(mean) || is_given(db);
  if (layer) check_call(stream, line, x, {}, {}, {{mean, "mean"}});
  if (stream.on_cuda()) return cuda::norm_backward(stream, dx, dw, db, dy, x, w, mean, rstd, accumulate, offset);
  (layer ? backward<true> : backward<false>)(stream, dx, dw, db, dy, x, w, mean, rstd, accumulate, offset);
}

}  // namespace ringtrain
