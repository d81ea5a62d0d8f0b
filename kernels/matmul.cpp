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
  const bool adds = !residual.empty() && residual.data == y.data;
  if (stream.on_cuda()) return cuda::linear_forward(stream, y, x, w, bias, residual);
  dispatch_float(x.dtype, [&, T = sizes.T, I = sizes.I, O = sizes.O]<class R>() {
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
  const Sizes sizes = check_call(dx, dy);
  check_weight(w, sizes, dx.dtype);
  if (stream.on_cuda()) return cuda::linear_backward_input(stream, dx, dy, w, accumulate);
  dispatch_float(dx.dtype, [&, T = sizes.T, I = sizes.I, O = sizes.O]<class R>() {
    cpu::gemm::multiply<R>(stream, T, I, O, {dy.as<R>(), O}, {w.as<R>(), I}, dx.as<R>(),
                           [=](R* to, std::int64_t, std::int64_t columns) {
                             if (!accumulate) std::fill_n(to, columns, R{0});
                           });
  });
}

void linear_backward_weight(Stream& stream, const TensorView& dw, const TensorView& dbias, const ConstTensorView& dy,
                            const ConstTensorView& x, bool accumulate) {
  const Sizes sizes = check_call(x, dy);
  if (!dw.empty()) check_weight(dw, sizes, accumulator(x.dtype));
  check_bias(dbias, sizes, accumulator(x.dtype));
  if (stream.on_cuda()) return cuda::linear_backward_weight(stream, dw, dbias, dy, x, accumulate);
  dispatch_float(x.dtype, [&, T = sizes.T, I = sizes.I, O = sizes.O]<class R>() {
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
