// The GPU's half of kernels/*.h: one function for each public one, with its signature and its promises, on device
// tensors. kernels/NAME.cpp has checked shapes and dtypes before it comes here. Nothing here waits for the device.
//
// Dtypes: float32 everywhere, or bfloat16 with what accumulates in float32 (kernels/precision.h). Any shape is legal;
// heads of 64 and 128 elements are fast, other sizes up to 256 are correct.
#pragma once

#include <span>

#include "kernels/adamw.h"
#include "kernels/attention.h"
#include "kernels/rope.h"

namespace ringtrain::cuda {

// kernels/elementwise.h
void fill(Stream& stream, const TensorView& x, double value);
void copy_in_order(Stream& stream, const TensorView& y, const TensorView& x);
void convert(Stream& stream, const TensorView& y, const TensorView& x);
void add(Stream& stream, const TensorView& y, const TensorView& x);
void sum_of_squares(Stream& stream, const TensorView& result, const TensorView& x, bool accumulate);
void fill_normal(Stream& stream, const TensorView& x, double stddev, std::uint64_t seed, std::uint64_t first_index);

// kernels/activation.h
void swiglu_forward(Stream& stream, const TensorView& y, const TensorView& gate, const TensorView& up);
void swiglu_backward(Stream& stream, const TensorView& dgate, const TensorView& dup, const TensorView& dy,
                     const TensorView& gate, const TensorView& up);
void gelu_forward(Stream& stream, const TensorView& y, const TensorView& x);
void gelu_backward(Stream& stream, const TensorView& dx, const TensorView& dy, const TensorView& x);

// kernels/adamw.h: one launch for as many slices as a kernel's arguments hold
void adamw_update(Stream& stream, std::span<const AdamWSlice> slices, const AdamW& hyper);

// kernels/attention.h
std::size_t attention_workspace_bytes(const Stream& stream, const AttentionShape& shape, DType dtype, std::int64_t Tq,
                                      std::int64_t Tk);
void attention_forward(Stream& stream, const AttentionShape& shape, const TensorView& q, const TensorView& k,
                       const TensorView& v, const AttentionTokens& queries, const AttentionTokens& keys,
                       const AttentionState& state, const AttentionPhase& phase, const TensorView& workspace);
void attention_finalize(Stream& stream, const AttentionState& state, const TensorView& out, const TensorView& lse);
void attention_delta(Stream& stream, const TensorView& delta, const TensorView& dout, const TensorView& out);
void attention_backward(Stream& stream, const AttentionShape& shape, const TensorView& q, const TensorView& k,
                        const TensorView& v, const TensorView& dout, const TensorView& lse, const TensorView& delta,
                        const AttentionTokens& queries, const AttentionTokens& keys, const TensorView& dq,
                        const TensorView& dk, const TensorView& dv, const TensorView& workspace);

// kernels/cross_entropy.h
void cross_entropy(Stream& stream, const TensorView& logits, const TensorView& nll, const TensorView& labels,
                   const TensorView& weights, double denominator, bool gradient);
void weighted_sum(Stream& stream, const TensorView& result, const TensorView& values, const TensorView& weights,
                  const TensorView& labels, bool accumulate);

// kernels/embedding.h
void embedding_forward(Stream& stream, const TensorView& y, const TensorView& ids, const TensorView& table,
                       bool accumulate);
void embedding_backward(Stream& stream, const TensorView& dtable, const TensorView& ids, const TensorView& dy);

// kernels/matmul.h: cuBLASLt
void linear_forward(Stream& stream, const TensorView& y, const TensorView& x, const TensorView& w,
                    const TensorView& bias);
void linear_backward_input(Stream& stream, const TensorView& dx, const TensorView& dy, const TensorView& w,
                           bool accumulate);
void linear_backward_weight(Stream& stream, const TensorView& dw, const TensorView& dbias, const TensorView& dy,
                            const TensorView& x);

// kernels/norm.h
void rmsnorm_forward(Stream& stream, const TensorView& y, const TensorView& rstd, const TensorView& x,
                     const TensorView& w, double eps);
void rmsnorm_backward(Stream& stream, const TensorView& dx, const TensorView& dw, const TensorView& dy,
                      const TensorView& x, const TensorView& w, const TensorView& rstd, bool accumulate);
void layernorm_forward(Stream& stream, const TensorView& y, const TensorView& mean, const TensorView& rstd,
                       const TensorView& x, const TensorView& w, const TensorView& b, double eps);
void layernorm_backward(Stream& stream, const TensorView& dx, const TensorView& dw, const TensorView& db,
                        const TensorView& dy, const TensorView& x, const TensorView& w, const TensorView& mean,
                        const TensorView& rstd, bool accumulate);

// kernels/rope.h
void rope_table(Stream& stream, const TensorView& table, const TensorView& positions,
                const RopeFrequencies& frequencies);
void rope_forward(Stream& stream, const TensorView& x, const TensorView& table);
void rope_backward(Stream& stream, const TensorView& dx, const TensorView& gradient, const TensorView& table);

}  // namespace ringtrain::cuda
