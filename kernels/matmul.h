// Matrix products of a linear layer. Weights are [O, I] row-major (out, in), as in a Hugging Face checkpoint. All
// operands have one dtype except dw and dbias, which have its accumulator; no communication. No call keeps memory. A
// tensor that does not fit is an Error(usage) that names the caller's line. On CUDA, cuBLASLt computes the products.
//
// Bits on a CPU: however work is cut, an element of a result is the sum, block by block, of fused multiply-add chains
// over 256 terms of the summed dimension, in order. So they depend neither on the number of threads nor on other
// elements of the output: a token's row of y or dx is the same for any number of tokens in a call, and dw is the same
// if the tokens come in several calls of multiples of 256. dbias adds a call's tokens in order, in double, and is
// rounded once per call.
#pragma once

#include "framework/const_tensor_view.h"
#include "framework/stream.h"
#include "framework/tensor.h"

namespace ringtrain {

/// The most elements of a weight on a GPU; more tokens are split (kernels/cuda/matmul.cu).
inline constexpr std::int64_t most_gpu_weights = INT32_MAX;

/// y[T, O] = x[T, I] w[O, I]^T + bias[O] + residual[T, O]. bias and residual may be empty. Overwrites y. (bfloat16 is
/// rounded once, after all sums; kernels/cuda/matmul.cu names exceptions.) Without a bias, y may be residual: the
/// product is added to the existing values.
void linear_forward(Stream& stream, const TensorView& y, const ConstTensorView& x, const ConstTensorView& w,
                    const ConstTensorView& bias, const ConstTensorView& residual = {},
                    const CallerLine& line = CallerLine::current());

/// dx[T, I] = dy[T, O] w[O, I], or += if accumulate.
void linear_backward_input(Stream& stream, const TensorView& dx, const ConstTensorView& dy, const ConstTensorView& w,
                           bool accumulate, const CallerLine& line = CallerLine::current());

/// dw[O, I] = dy[T, O]^T x[T, I] and dbias[O] = sum over T of dy, or += if accumulate. An empty one is not computed.
void linear_backward_weight(Stream& stream, const TensorView& dw, const TensorView& dbias, const ConstTensorView& dy,
                            const ConstTensorView& x, bool accumulate, const CallerLine& line = CallerLine::current());

}  // namespace ringtrain
