// A linear layer's products on the CPU: all three are one product (cpu/gemm.h) with operands in different memory
// orders, on tiles of the output spread over the pool.
#include "kernels/matmul.h"

#include "kernels/check.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/gemv.h"
#include "kernels/cpu/loops.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/elementwise.h"

namespace ringtrain {

namespace {

using cpu::gemm::Operand;

struct Sizes {
  std::int64_t T, I, O;
};

/// The tensors of a call, by their names in the header.
struct Call {
  const Stream& stream;
  const CallerLine& line;

  /// x: the input; y: the output for the same tokens.
  Sizes sizes_of(const ConstTensorView& x, const char* x_name, const char* x_width, const ConstTensorView& y,
                 const char* y_name, const char* y_width) const {
    check_number(stream, x, x_name, line);
    check_argument(stream, x, x_name, {{"T", any_size}, {x_width, any_size}}, x.dtype, line);
    check_argument(stream, y, y_name, {{"T", x.dim(0)}, {y_width, any_size}}, x.dtype, line);
    return {x.dim(0), x.dim(1), y.dim(1)};
  }
  /// dtype: that of x for a weight, its accumulator for a weight's gradient.
  void check_weight(const ConstTensorView& w, const char* name, const Sizes& sizes, DType dtype) const {
    check_argument(stream, w, name, {{"O", sizes.O}, {"I", sizes.I}}, dtype, line);
  }
  void check_bias(const ConstTensorView& bias, const char* name, const Sizes& sizes, DType dtype) const {
    if (!bias.empty()) check_argument(stream, bias, name, {{"O", sizes.O}}, dtype, line);
  }
};

/// A product's start: 0, or the existing value.
template <class A>
auto zero_unless(bool there) {
  return [=](A* to, std::int64_t, std::int64_t columns) {
    if (!there) std::fill_n(to, columns, A{0});
  };
}

/// A product's finish: sums plus the residual (empty: none; it has y's shape and may be y), rounded to y.
template <class S, class A>
auto rounding(const TensorView& y, const ConstTensorView& residual) {
  const S* const base = y.as<S>();
  const S* const residual_data = residual.empty() ? nullptr : residual.as<S>();
  return [=](S* to, const A* sums, std::int64_t columns) {
    if (residual_data == nullptr) return cpu::for_vectors<A>(0, columns, [=](auto at) { at.put(to, at(sums)); });
    const S* const added = residual_data + (to - base);
    cpu::for_vectors<A>(0, columns, [=](auto at) { at.put(to, at(sums) + at(added)); });
  };
}
/// The finish of sums that are already in the output.
constexpr auto stored = [](auto*, const auto*, std::int64_t) {};

/// gemm::multiply with operands packed in the way this process multiplies them. Without terms, rows are finish(start).
template <class S, class A, class C, class Start, class Finish>
void multiply(Stream& stream, std::int64_t M, std::int64_t N, std::int64_t K, const Operand<S>& a, const Operand<S>& b,
              C* c, Start&& start, Finish&& finish) {
  if (K == 0) {
    const C* const nothing = nullptr;
    for (C* row = c; row < c + M * N; row += N) {
      cpu::gemm::multiply_row<C, A>(stream.pool(), N, 0, nothing, nothing, row, start, finish);
    }
    return;
  }
  cpu::dispatch_packed<S, A>([&]<class P>() {
    cpu::gemm::multiply<S, A, P>(stream, M, N, K, a, b, c, std::forward<Start>(start), std::forward<Finish>(finish));
  });
}

}  // namespace

void linear_forward(Stream& stream, const TensorView& y, const ConstTensorView& x, const ConstTensorView& w,
                    const ConstTensorView& bias, const ConstTensorView& residual, const CallerLine& line) {
  const Call call{stream, line};
  const Sizes sizes = call.sizes_of(x, "x", "I", y, "y", "O");
  call.check_weight(w, "w", sizes, x.dtype);
  call.check_bias(bias, "bias", sizes, x.dtype);
  if (!residual.empty()) {
    check_argument(stream, residual, "residual", {{"T", sizes.T}, {"O", sizes.O}}, y.dtype, line);
    require_call(residual.data != y.data || bias.empty(), "a bias must not be given if residual is y", line);
  }
  if (stream.on_cuda()) return cuda::linear_forward(stream, y, x, w, bias, residual);
  const bool rounds = accumulator(y.dtype) != y.dtype;  // then the residual is added to the sums before rounding
  const bool adds = !residual.empty() && residual.data == y.data && !rounds;
  dispatch_dtype(x.dtype, [&, T = sizes.T, I = sizes.I, O = sizes.O]<class S, class A>() {
    const S* const b = bias.empty() ? nullptr : bias.as<S>();
    const auto start = [=](A* to, std::int64_t column, std::int64_t columns) {
      if (b != nullptr) {
        cpu::for_vectors<A>(0, columns, [=](auto at) { at.put(to, at(b + column)); });
      } else if (!adds) {
        std::fill_n(to, columns, A{0});
      }
    };
    const auto finish = rounding<S, A>(y, residual);
    if (T == 1) {  // a decode step
      cpu::gemm::multiply_row<S, A>(stream.pool(), O, I, x.as<S>(), w.as<S>(), y.as<S>(), start, finish);
    } else {
      multiply<S, A>(stream, T, O, I, {x.as<S>(), I}, {w.as<S>(), I, true}, y.as<S>(), start, finish);
    }
  });
  if (!residual.empty() && !adds && !rounds) add(stream, y, residual);
}

void linear_backward_input(Stream& stream, const TensorView& dx, const ConstTensorView& dy, const ConstTensorView& w,
                           bool accumulate, const CallerLine& line) {
  const Call call{stream, line};
  const Sizes sizes = call.sizes_of(dx, "dx", "I", dy, "dy", "O");
  call.check_weight(w, "w", sizes, dx.dtype);
  if (stream.on_cuda()) return cuda::linear_backward_input(stream, dx, dy, w, accumulate);
  dispatch_dtype(dx.dtype, [&, T = sizes.T, I = sizes.I, O = sizes.O]<class S, class A>() {
    multiply<S, A>(stream, T, I, O, {dy.as<S>(), O}, {w.as<S>(), I}, dx.as<S>(),
                   zero_unless<A>(accumulate && std::is_same_v<S, A>),
                   rounding<S, A>(dx, accumulate ? dx : TensorView{}));
  });
}

void linear_backward_weight(Stream& stream, const TensorView& dw, const TensorView& dbias, const ConstTensorView& dy,
                            const ConstTensorView& x, bool accumulate, const CallerLine& line) {
  const Call call{stream, line};
  const Sizes sizes = call.sizes_of(x, "x", "I", dy, "dy", "O");
  if (!dw.empty()) call.check_weight(dw, "dw", sizes, accumulator(x.dtype));
  call.check_bias(dbias, "dbias", sizes, accumulator(x.dtype));
  if (stream.on_cuda()) return cuda::linear_backward_weight(stream, dw, dbias, dy, x, accumulate);
  dispatch_dtype(x.dtype, [&, T = sizes.T, I = sizes.I, O = sizes.O]<class S, class A>() {
    if (!dw.empty()) {
      multiply<S, A>(stream, O, I, T, {dy.as<S>(), O, true}, {x.as<S>(), I}, dw.as<A>(), zero_unless<A>(accumulate),
                     stored);
    }
    if (dbias.empty()) return;
    if (!accumulate) fill(stream, dbias, 0.0);
    const S* const from = dy.as<S>();
    cpu::sum_rows_into(stream.pool(), T, O, dbias.as<A>(), [=](std::int64_t t, auto at) { return at(from + t * O); });
  });
}

}  // namespace ringtrain
