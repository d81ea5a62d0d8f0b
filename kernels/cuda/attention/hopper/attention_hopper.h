// Attention for Hopper (sm_90a): bfloat16, head sizes 64 and 128, on wgmma and TMA with a warpgroup that loads and two
// or three that compute. kernels/cuda/attention/attention.cu comes here where supports() says so and goes the portable
// way elsewhere. What is computed is what kernels/attention.h promises; shapes and dtypes were checked there.
//
// Structure after Shah et al., FlashAttention-3, 2024. The kernels' grids are persistent: blocks take tiles from a
// counter, the longest first.
#pragma once

#include <cstddef>
#include <cstdint>

#include "framework/const_tensor_view.h"
#include "kernels/attention.h"

namespace ringtrain::cuda::hopper {

/// Returns whether these calls run here: the chip is of compute capability 9.0, dtype (of q) is bfloat16, D is 64 or
/// 128, there is something to do (B, Tq, Tk > 0), and scores have no softcap: its slopes would not fit into the
/// registers that backward has beside its sums.
bool supports(const Stream& stream, const AttentionShape& shape, DType dtype, std::int64_t Tq, std::int64_t Tk);

/// Returns the bytes of workspace that a call of forward or of backward needs: the tile counter, and turns for
/// backward's deterministic mode.
std::size_t workspace_bytes(const AttentionShape& shape, std::int64_t Tq);

/// As attention_forward, for what supports() admits. Tensors are 16-byte aligned. workspace: on the
/// device, of workspace_bytes, 4-byte aligned.
void forward(Stream& stream, const AttentionShape& shape, const ConstTensorView& q, const ConstTensorView& k,
             const ConstTensorView& v, const AttentionTokens& queries, const AttentionTokens& keys,
             const AttentionState& state, const AttentionPhase& phase, void* workspace);

/// As attention_backward, for what supports() admits. A row of dk and dv is set or added to by one block, thus the same
/// bits in every run; dq by atomic additions, whose order is fixed where the shape says deterministic.
void backward(Stream& stream, const AttentionShape& shape, const ConstTensorView& q, const ConstTensorView& k,
              const ConstTensorView& v, const ConstTensorView& dout, const ConstTensorView& lse,
              const ConstTensorView& delta, const AttentionTokens& queries, const AttentionTokens& keys,
              const TensorView& dq, const TensorView& dk, const TensorView& dv, bool accumulate, void* workspace);

}  // namespace ringtrain::cuda::hopper
