// RMSNorm (Zhang and Sennrich, 2019, eq. 4) and LayerNorm (Ba et al., 2016). x, y, dx, dy: [T, C]; w, b, dw, db: [C];
// rstd, mean: [T], computed by forward and kept for backward. x, y, dx, dy, w, b have one dtype; all others have its
// accumulator (framework/dtype.h). On a CPU, sums use double. Parameter gradients add, tokens in order, in tasks cut by
// columns, and may be empty: those of frozen parameters are not computed. dx adds if accumulate (the residual stream).
// A tensor that does not fit is an Error(usage) that names the caller's line. No communication.
#pragma once

#include "framework/const_tensor_view.h"
#include "framework/stream.h"
#include "framework/tensor.h"

namespace ringtrain {

/// LayerNorm: y = (x - mean) * rstd * w + b. RMSNorm, if mean and b are left out as {}: y = x * rstd * (offset + w),
/// rstd = 1 / sqrt(mean(x^2) + eps). offset: 0, or 1 if weights are stored relative to 1.
void norm_forward(Stream& stream, const TensorView& y, const TensorView& mean, const TensorView& rstd,
                  const ConstTensorView& x, const ConstTensorView& w, const ConstTensorView& b, double eps,
                  double offset = 0, const CallerLine& line = CallerLine::current());
/// dx[T, C] = the gradient of x, or += if accumulate; dw[C] += that of w, db[C] += that of b. dy[T, C]: that of y;
/// mean[T], rstd[T]: from forward. RMSNorm, if mean and db are left out. dx may be dy's memory.
void norm_backward(Stream& stream, const TensorView& dx, const TensorView& dw, const TensorView& db,
                   const ConstTensorView& dy, const ConstTensorView& x, const ConstTensorView& w,
                   const ConstTensorView& mean, const ConstTensorView& rstd, bool accumulate, double offset = 0,
                   const CallerLine& line = CallerLine::current());

}  // namespace ringtrain
