// One call of attention as its kernels receive it: typed device pointers and the maps of tokens, one kernel argument by
// value. kernels/cuda/attention/attention.cu chooses between the tensor-core path (bfloat16, heads of 64 and 128) and
// the general one. Hopper's path has its own header (hopper/attention_hopper.h).
#pragma once

#include <cuda_bf16.h>

#include <cstddef>
#include <type_traits>

#include "framework/cuda/context.h"
#include "kernels/attention.h"
#include "kernels/cuda/attention/attention_mask.cuh"

namespace ringtrain::cuda {

/// T: __nv_bfloat16 or float. Tq = queries.tokens, Tk = keys.tokens, either may be 0.
template <class T>
struct ForwardCall {
  AttentionShape shape;
  TokenMap queries, keys;
  const T *q, *k, *v;  // [B, Tq, H, D], [B, Tk, G, D] twice
  float *o, *m, *l;    // [B, Tq, H, D], [B, H, Tq] twice
  bool first, last;    // of a state's blocks: AttentionPhase
  T* out;              // [B, Tq, H, D]; null except at the last
  float* lse;          // [B, H, Tq]; the same
};

template <class T>
struct BackwardCall {
  AttentionShape shape;
  TokenMap queries, keys;
  const T *q, *k, *v, *dout;  // [B, Tq, H, D], [B, Tk, G, D] twice, [B, Tq, H, D]
  const float *lse, *delta;   // [B, H, Tq]
  float *dq, *dk, *dv;        // with the shapes of q, k, v
};
static_assert(std::is_trivially_copyable_v<ForwardCall<float>> && sizeof(BackwardCall<float>) < 2048);

/// The tensor-core path, for D 64 and 128 and 16-byte aligned pointers.
void tensor_forward(Context& context, const ForwardCall<__nv_bfloat16>& call);
/// workspace: of tensor_workspace_bytes, 16-byte aligned.
void tensor_backward(Context& context, const BackwardCall<__nv_bfloat16>& call, void* workspace);
std::size_t tensor_workspace_bytes(const AttentionShape& shape, std::int64_t Tq);

/// For D up to largest_gpu_head; sums in float32 throughout, with the same bits in every run.
template <class T>
void general_forward(Context& context, const ForwardCall<T>& call);
template <class T>
void general_backward(Context& context, const BackwardCall<T>& call);

}  // namespace ringtrain::cuda
