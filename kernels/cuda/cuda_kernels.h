// The GPU's half of kernels/*.h: one function for each public one, with its signature and its promises, on device
// tensors. kernels/NAME.cpp has checked shapes and dtypes before it comes here. Nothing here waits for the device.
//
// Dtypes: float32 everywhere, or bfloat16 with what accumulates in float32 (framework/dtype.h). Any shape is legal;
// heads of 64 and 128 elements are fast, other sizes up to 256 are correct.
#pragma once

#include <span>

#include "framework/const_tensor_view.h"
#include "kernels/adamw.h"
#include "kernels/attention.h"
#include "kernels/rope.h"

namespace ringtrain::cuda {

// kernels/elementwise.h
void fill(Stream& stream, const TensorView& x, double value);
void copy_in_order(Stream& stream, const TensorView& y, const ConstTensorView& x);
void convert(Stream& stream, const TensorView& y, const ConstTensorView& x);
void add(Stream& stream, const TensorView& y, const ConstTensorView& x);
void sum_of_squares(Stream& stream, const TensorView& result, const ConstTensorView& x, bool accumulate);
void fill_normal(Stream& stream, const TensorView& x, double stddev, std::uint64_t seed, std::uint64_t first_index);

// kernels/activation.h
void swiglu_forward(Stream& stream, const TensorView& y, const ConstTensorView& gate, const ConstTensorView& up);
void swiglu_backward(Stream& stream, const TensorView& dgate, const TensorView& dup, const ConstTensorView& dy,
                     const ConstTensorView& gate, const ConstTensorView& up);
void gelu_forward(Stream& stream, const TensorView& y, const ConstTensorView& x);
void gelu_backward(Stream& stream, const TensorView& dx, const ConstTensorView& dy, const ConstTensorView& x);

// kernels/adamw.h: one launch for as many slices as a kernel's arguments hold
void adamw_update(Stream& stream, std::span<const AdamWSlice> slices, const AdamW& hyper);

// kernels/attention.h
std::size_t attention_workspace_bytes(const Stream& stream, const AttentionShape& shape, DType dtype, std::int64_t Tq,
                                      std::int64_t Tk);
void attention_forward(Stream& stream, const AttentionShape& shape, const ConstTensorView& q, const ConstTensorView& k,
                       const ConstTensorView& v, const AttentionTokens& queries, const AttentionTokens& keys,
                       const AttentionState& state, const AttentionPhase& phase, const TensorView& workspace);
void attention_finalize(Stream& stream, const AttentionState& state, const TensorView& out, const TensorView& lse);
void attention_delta(Stream& stream, const TensorView& delta, const ConstTensorView& dout, const ConstTensorView& out);
void attention_backward(Stream& stream, const AttentionShape& shape, const ConstTensorView& q, const ConstTensorView& k,
                        const ConstTensorView& v, const ConstTensorView& dout, const ConstTensorView& lse,
                        const ConstTensorView& delta, const AttentionTokens& queries, const AttentionTokens& keys,
                        const TensorView& dq, const TensorView& dk, const TensorView& dv, const TensorView& workspace,
                        bool accumulate);

// kernels/cross_entropy.h
void cross_entropy(Stream& stream, const TensorView& logits, const TensorView& nll, const ConstTensorView& labels,
                   const ConstTensorView& weights, double denominator, bool gradient);
void weighted_sum(Stream& stream, const TensorView& result, const ConstTensorView& values,
                  const ConstTensorView& weights, const ConstTensorView& labels, bool accumulate);

// kernels/embedding.h
void embedding_forward(Stream& stream, const TensorView& y, const ConstTensorView& ids, const ConstTensorView& table,
                       bool accumulate);
void embedding_backward(Stream& stream, const TensorView& dtable, const ConstTensorView& ids,
                        const ConstTensorView& dy);

// kernels/matmul.h: cuBLASLt
void linear_forward(Stream& stream, const TensorView& y, const ConstTensorView& x, const ConstTensorView& w,
                    const ConstTensorView& bias, const ConstTensorView& residual);
void linear_backward_input(Stream& stream, const TensorView& dx, const ConstTensorView& dy, const ConstTensorView& w,
                           bool accumulate);
void linear_backward_weight(Stream& stream, const TensorView& dw, const TensorView& dbias, const ConstTensorView& dy,
                            const ConstTensorView& x, bool accumulate);

// kernels/norm.h
void rmsnorm_forward(Stream& stream, const TensorView& y, const TensorView& rstd, const ConstTensorView& x,
                     const ConstTensorView& w, double eps);
void rmsnorm_backward(Stream& stream, const TensorView& dx, const TensorView& dw, const ConstTensorView& dy,
                      const ConstTensorView& x, const ConstTensorView& w, const ConstTensorView& rstd, bool accumulate);
void layernorm_forward(Stream& stream, const TensorView& y, const TensorView& mean, const TensorView& rstd,
                       const ConstTensorView& x, const ConstTensorView& w, const ConstTensorView& b, double eps);
void layernorm_backward(Stream& stream, const TensorView& dx, const TensorView& dw, const TensorView& db,
                        const ConstTensorView& dy, const ConstTensorView& x, const ConstTensorView& w,
                        const ConstTensorView& mean, const ConstTensorView& rstd, bool accumulate);

// kernels/rope.h
void rope_table(Stream& stream, const TensorView& table, const ConstTensorView& positions,
                const RopeFrequencies& frequencies);
void rope_forward(Stream& stream, const TensorView& x, const ConstTensorView& table);
void rope_backward(Stream& stream, const TensorView& dx, const ConstTensorView& gradient, const ConstTensorView& table);

}  // namespace ringtrain::cuda
