// Matrix products of a linear layer. Weights are [O, I] row-major (out, in), as in a Hugging Face checkpoint.
// All: dtype float32 or float64, the same for every operand; no communication; work is cut into fixed tiles by the
// problem, so that the bits do not depend on the number of threads. No call keeps memory.
#pragma once

#include "framework/stream.h"
#include "framework/tensor.h"

namespace ringtrain {

/// y[T, O] = x[T, I] w[O, I]^T + bias[O]. bias may be empty. Overwrites y.
void linear_forward(Stream& stream, const TensorView& y, const TensorView& x, const TensorView& w,
                    const TensorView& bias);

/// dx[T, I] = dy[T, O] w[O, I], or += if accumulate.
void linear_backward_input(Stream& stream, const TensorView& dx, const TensorView& dy, const TensorView& w,
                           bool accumulate);

/// dw[O, I] += dy[T, O]^T x[T, I]; dbias[O] += sum over T of dy. dbias may be empty. Parameter gradients always add.
void linear_backward_weight(Stream& stream, const TensorView& dw, const TensorView& dbias, const TensorView& dy,
                            const TensorView& x);

}  // namespace ringtrain
