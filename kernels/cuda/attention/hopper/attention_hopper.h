// Attention for Hopper (sm_90a): bfloat16, head sizes 64 and 128, on wgmma and TMA, with one warpgroup that loads and
// two or three that compute. kernels/cuda/attention/attention.cu uses it if supports() returns true and uses the
// portable kernels otherwise. kernels/attention.h defines what is computed, and its functions have checked shapes and
// dtypes.
//
// The structure follows Shah et al., FlashAttention-3, 2024. The kernels' grids are persistent: blocks take tiles from
// a counter, the longest first.
#pragma once

#include <cstddef>
#include <cstdint>

#include "framework/const_tensor_view.h"
#include "kernels/attention.h"

namespace ringtrain::cuda::hopper {

/// Returns whether these calls run here: the chip has compute capability 9.0, dtype (of q) is bfloat16, D is 64 or 128,
/// there is something to do (B, Tq, Tk > 0), and scores have no softcap, whose slopes would not fit into the registers
/// of backward in addition to its sums.
bool supports(const Stream& stream, const AttentionShape& shape, DType dtype, std::int64_t Tq, std::int64_t Tk);

/// Returns the bytes of workspace that a call of forward or of backward needs: the tile counter, and turns for
/// backward's deterministic mode.
std::size_t workspace_bytes(const AttentionShape& shape, std::int64_t Tq);

/// attention_forward for calls that supports() admits. Tensors are 16-byte aligned. workspace: on the device, of
/// workspace_bytes, 4-byte aligned.
void forward(Stream& stream, const AttentionShape& shape, const ConstTensorView& q, const ConstTensorView& k,
             const ConstTensorView& v, const AttentionTokens& queries, const AttentionTokens& keys,
             const AttentionState& state, const AttentionPhase& phase, void* workspace);

/// attention_backward for calls that supports() admits. Only one block sets or adds to a row of dk and dv, so their
/// bits are the same in every run; dq is added with atomics, whose order is fixed if the shape is deterministic.
void backward(Stream& stream, const AttentionShape& shape, const ConstTensorView& q, const ConstTensorView& k,
              const ConstTensorView& v, const ConstTensorView& dout, const ConstTensorView& lse,
              const ConstTensorView& delta, const AttentionTokens& queries, const AttentionTokens& keys,
              const TensorView& dq, const TensorView& dk, const TensorView& dv, bool accumulate, void* workspace);

}  // namespace ringtrain::cuda::hopper
