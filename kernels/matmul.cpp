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

/// w, bias: in x's dtype weights, in its accumulator their gradients.
Sizes check_call(const ConstTensorView& x, const ConstTensorView& w, const ConstTensorView& y,
                 const ConstTensorView& bias, DType w_dtype) {
  ensure(x.shape.rank() == 2 && w.shape.rank() == 2, "a linear layer's x is [T, I] and its w [O, I]");
  const Sizes sizes{x.dim(0), x.dim(1), w.dim(0)};
  check_tensor(w, {sizes.O, sizes.I}, w_dtype, "a linear layer's w is [O, I]");
  check_tensor(y, {sizes.T, sizes.O}, x.dtype, "a linear layer's y is [T, O]");
  if (!bias.empty()) check_tensor(bias, {sizes.O}, w_dtype, "a linear layer's bias is [O]");
  return sizes;
}

}  // namespace

void linear_forward(Stream& stream, const TensorView& y, const ConstTensorView& x, const ConstTensorView& w,
                    const ConstTensorView& bias, const ConstTensorView& residual) {
  const auto [T, I, O] = check_call(x, w, y, bias, x.dtype);
  if (!residual.empty()) {
    check_tensor(residual, y.shape, y.dtype, "a linear layer's residual is of y's shape");
    ensure(residual.data != y.data || bias.empty(), "y that is added to has its bias already");
  }
  const bool adds = !residual.empty() && residual.data == y.data;
  if (stream.on_cuda()) return cuda::linear_forward(stream, y, x, w, bias, residual);
  dispatch_float(x.dtype, [&, T = T, I = I, O = O]<class R>() {
    const R* const b = bias.empty() ? nullptr : bias.as<R>();
    const auto start = [=](R* to, std::int64_t column, std::int64_t columns) {
      if (b != nullptr) {
        std::copy_n(b + column, columns, to);
      } else if (!adds) {
        std::fill_n(to, columns, R{0});
      }
    };
    if (T == 1) {  // a decode step
      cpu::gemm::multiply_row<R>(stream.pool(), O, I, x.as<R>(), w.as<R>(), y.as<R>(), start);
    } else {
      cpu::gemm::multiply<R>(stream, T, O, I, {x.as<R>(), I}, {w.as<R>(), I, true}, y.as<R>(), start);
    }
  });
  if (!residual.empty() && !adds) add(stream, y, residual);
}

void linear_backward_input(Stream& stream, const TensorView& dx, const ConstTensorView& dy, const ConstTensorView& w,
                           bool accumulate) {
  const auto [T, I, O] = check_call(dx, w, dy, {}, dx.dtype);
  if (stream.on_cuda()) return cuda::linear_backward_input(stream, dx, dy, w, accumulate);
  dispatch_float(dx.dtype, [&, T = T, I = I, O = O]<class R>() {
    cpu::gemm::multiply<R>(stream, T, I, O, {dy.as<R>(), O}, {w.as<R>(), I}, dx.as<R>(),
                           [=](R* to, std::int64_t, std::int64_t columns) {
                             if (!accumulate) std::fill_n(to, columns, R{0});
                           });
  });
}

void linear_backward_weight(Stream& stream, const TensorView& dw, const TensorView& dbias, const ConstTensorView& dy,
                            const ConstTensorView& x, bool accumulate) {
  const Shape shape{dy.dim(1), x.dim(1)};  // of dw, which may be empty
  const TensorView like_dw{nullptr, shape, accumulator(x.dtype), x.device};
  const auto [T, I, O] = check_call(x, dw.empty() ? like_dw : dw, dy, dbias, accumulator(x.dtype));
  if (stream.on_cuda()) return cuda::linear_backward_weight(stream, dw, dbias, dy, x, accumulate);
  dispatch_float(x.dtype, [&, T = T, I = I, O = O]<class R>() {
    if (!dw.empty()) {
      cpu::gemm::multiply<R>(stream, O, I, T, {dy.as<R>(), O, true}, {x.as<R>(), I}, dw.as<R>(),
                             [=](R* to, std::int64_t, std::int64_t columns) {
                               if (!accumulate) std::fill_n(to, columns, R{0});
                             });
    }
    if (dbias.empty()) return;
    if (!accumulate) fill(stream, dbias, 0.0);
    const R* const from = dy.as<R>();
    cpu::sum_rows_into(stream.pool(), T, O, dbias.as<R>(), [=](std::int64_t t, auto at) { return at(from + t * O); });
  });
}

}  // namespace ringtrain
