// A linear layer's products on the CPU: the three are one product (cpu/gemm.h) of operands that lie one way or the
// other, on tiles of the output spread over the pool.
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

Sizes check_call(const ConstTensorView& x, const ConstTensorView& y) {
  ensure(x.shape.rank() == 2 && y.shape.rank() == 2, "a linear layer's x is [T, I] and its y [T, O]");
  check_tensor(y, {x.dim(0), y.dim(1)}, x.dtype, "a linear layer's y is [T, O]");
  return {x.dim(0), x.dim(1), y.dim(1)};
}

/// dtype: x's of a weight, its accumulator of a weight's gradient.
void check_weight(const ConstTensorView& w, const Sizes& sizes, DType dtype) {
  check_tensor(w, {sizes.O, sizes.I}, dtype, "a linear layer's w is [O, I]");
}
void check_bias(const ConstTensorView& bias, const Sizes& sizes, DType dtype) {
  if (!bias.empty()) check_tensor(bias, {sizes.O}, dtype, "a linear layer's bias is [O]");
}

/// A product's start: 0, or what is there already.
template <class A>
auto zero_unless(bool there) {
  return [=](A* to, std::int64_t, std::int64_t columns) {
    if (!there) std::fill_n(to, columns, A{0});
  };
}

/// A product's finish: sums plus the residual (empty: none; y's shape, perhaps y itself), rounded to y.
template <class S, class A>
auto rounding(const TensorView& y, const ConstTensorView& residual) {
  const S* const base = y.as<S>();
  const S* const more = residual.empty() ? nullptr : residual.as<S>();
  return [=](S* to, const A* sums, std::int64_t columns) {
    if (more == nullptr) return cpu::for_vectors<A>(0, columns, [=](auto at) { at.put(to, at(sums)); });
    const S* const added = more + (to - base);
    cpu::for_vectors<A>(0, columns, [=](auto at) { at.put(to, at(sums) + at(added)); });
  };
}
/// Of sums that stand in their place.
constexpr auto stored = [](auto*, const auto*, std::int64_t) {};

/// gemm::multiply of operands packed as this process multiplies them.
template <class S, class A, class C, class Start, class Finish>
void multiply(Stream& stream, std::int64_t M, std::int64_t N, std::int64_t K, const Operand<S>& a, const Operand<S>& b,
              C* c, Start&& start, Finish&& finish) {
  cpu::dispatch_packed<S, A>([&]<class P>() {
    cpu::gemm::multiply<S, A, P>(stream, M, N, K, a, b, c, std::forward<Start>(start), std::forward<Finish>(finish));
  });
}

}  // namespace

void linear_forward(Stream& stream, const TensorView& y, const ConstTensorView& x, const ConstTensorView& w,
                    const ConstTensorView& bias, const ConstTensorView& residual) {
  const Sizes sizes = check_call(x, y);
  check_weight(w, sizes, x.dtype);
  check_bias(bias, sizes, x.dtype);
  if (!residual.empty()) {
    check_tensor(residual, y.shape, y.dtype, "a linear layer's residual is of y's shape");
    ensure(residual.data != y.data || bias.empty(), "y that is added to has its bias already");
  }
  if (stream.on_cuda()) return cuda::linear_forward(stream, y, x, w, bias, residual);
  const bool rounds = accumulator(y.dtype) != y.dtype;  // then the residual joins the sums before they are rounded
  const bool adds = !residual.empty() && residual.data == y.data && !rounds;
  dispatch_dtype(x.dtype, [&, T = sizes.T, I = sizes.I, O = sizes.O]<class S, class A>() {
    const S* const b = bias.empty() ? nullptr : bias.as<S>();
    const auto start = [=](A* to, std::int64_t column, std::int64_t columns) {
      if (b != nullptr) {
        cpu::copy_widened(b + column, columns, to);
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
                           bool accumulate) {
  const Sizes sizes = check_call(dx, dy);
  check_weight(w, sizes, dx.dtype);
  if (stream.on_cuda()) return cuda::linear_backward_input(stream, dx, dy, w, accumulate);
  dispatch_dtype(dx.dtype, [&, T = sizes.T, I = sizes.I, O = sizes.O]<class S, class A>() {
    multiply<S, A>(stream, T, I, O, {dy.as<S>(), O}, {w.as<S>(), I}, dx.as<S>(),
                   zero_unless<A>(accumulate && std::is_same_v<S, A>),
                   rounding<S, A>(dx, accumulate ? dx : TensorView{}));
  });
}

void linear_backward_weight(Stream& stream, const TensorView& dw, const TensorView& dbias, const ConstTensorView& dy,
                            const ConstTensorView& x, bool accumulate) {
  const Sizes sizes = check_call(x, dy);
  if (!dw.empty()) check_weight(dw, sizes, accumulator(x.dtype));
  check_bias(dbias, sizes, accumulator(x.dtype));
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
