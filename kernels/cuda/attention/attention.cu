// Attention on CUDA: selects the kernels of a call. bfloat16 with heads of 64 or 128 runs on tensor cores, with
// Hopper's own kernels if the chip is one and scores have no softcap; all other calls use the general path.
// kernels/attention.cpp has checked shapes, dtypes, and the workspace's size.
#include <algorithm>

#include "kernels/cuda/attention/attention_calls.cuh"
#include "kernels/cuda/attention/hopper/attention_hopper.h"
#include "kernels/cuda/attention/hopper/choices.h"
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/elements.cuh"

namespace ringtrain::cuda {

namespace {

constexpr std::size_t workspace_alignment = 16;

bool tensor_cores_take(DType dtype, std::int64_t D) {
  return dtype == DType::bfloat16 && (D == 64 || D == 128);
}

bool hopper_takes(const Stream& stream, const AttentionShape& shape, DType dtype, std::int64_t Tq, std::int64_t Tk) {
  return !hopper::portable_is_forced() && hopper::supports(stream, shape, dtype, Tq, Tk);
}

/// Throws unless the general path supports heads of D elements.
void check_head(std::int64_t D) {
  if (D > largest_gpu_head) {
    fail(ExitCode::usage, "attention on CUDA takes heads of at most {} elements, not {}: choose more heads",
         largest_gpu_head, D);
  }
}

/// Returns the workspace from its first 16-byte boundary.
void* aligned(const TensorView& workspace) {
  auto address = reinterpret_cast<std::uintptr_t>(workspace.data);
  address = (address + workspace_alignment - 1) / workspace_alignment * workspace_alignment;
  return reinterpret_cast<void*>(address);
}

}  // namespace

// For any chip: a plan is made without one.
std::size_t attention_workspace_bytes(const Stream&, const AttentionShape& shape, DType dtype, std::int64_t Tq,
                                      std::int64_t) {
  std::size_t bytes = 0;
  if (tensor_cores_take(dtype, shape.D)) {
    bytes = std::max(tensor_workspace_bytes(shape, Tq), hopper::workspace_bytes(shape, Tq));
  }
  return bytes + workspace_alignment;
}

void attention_forward(Stream& stream, const AttentionShape& shape, const ConstTensorView& q, const ConstTensorView& k,
                       const ConstTensorView& v, const AttentionTokens& queries, const AttentionTokens& keys,
                       const AttentionState& state, const AttentionPhase& phase, const TensorView& workspace) {
  check_head(shape.D);
  const std::int64_t Tq = token_count(queries.segments), Tk = token_count(keys.segments);
  const bool whole = aligned_to(16, {q.data, k.data, v.data, state.o.data, phase.out.data});
  if (whole && hopper_takes(stream, shape, q.dtype, Tq, Tk)) {
    return hopper::forward(stream, shape, q, k, v, queries, keys, state, phase, aligned(workspace));
  }
  dispatch_storage(q.dtype, [&]<class T>() {
    const ForwardCall<T> call{shape,
                              token_map(queries),
                              token_map(keys),
                              q.as<T>(),
                              k.as<T>(),
                              v.as<T>(),
                              state.o.as<float>(),
                              state.m.as<float>(),
                              state.l.as<float>(),
                              phase.init,
                              phase.finalize,
                              phase.finalize ? phase.out.as<T>() : nullptr,
                              phase.finalize ? phase.lse.as<float>() : nullptr};
    if constexpr (std::is_same_v<T, bf16>) {
      if (whole && tensor_cores_take(q.dtype, shape.D)) return tensor_forward(stream.cuda(), call);
    }
    general_forward(stream.cuda(), call);
  });
}

void attention_backward(Stream& stream, const AttentionShape& shape, const ConstTensorView& q, const ConstTensorView& k,
                        const ConstTensorView& v, const ConstTensorView& dout, const ConstTensorView& lse,
                        const ConstTensorView& delta, const AttentionTokens& queries, const AttentionTokens& keys,
                        const TensorView& dq, const TensorView& dk, const TensorView& dv, const TensorView& workspace,
                        bool accumulate) {
  check_head(shape.D);
  const std::int64_t Tq = token_count(queries.segments), Tk = token_count(keys.segments);
  void* const memory = aligned(workspace);
  const bool whole = aligned_to(16, {q.data, k.data, v.data, dout.data, dq.data, dk.data, dv.data});
  if (whole && hopper_takes(stream, shape, q.dtype, Tq, Tk)) {
    return hopper::backward(stream, shape, q, k, v, dout, lse, delta, queries, keys, dq, dk, dv, accumulate, memory);
  }
  if (!accumulate) {
    cuda::fill(stream, dk, 0);
    cuda::fill(stream, dv, 0);
  }
  dispatch_storage(q.dtype, [&]<class T>() {
    const BackwardCall<T> call{shape,          token_map(queries), token_map(keys), q.as<T>(),         k.as<T>(),
                               v.as<T>(),      dout.as<T>(),       lse.as<float>(), delta.as<float>(), dq.as<float>(),
                               dk.as<float>(), dv.as<float>()};
    if constexpr (std::is_same_v<T, bf16>) {
      if (whole && tensor_cores_take(q.dtype, shape.D)) return tensor_backward(stream.cuda(), call, memory);
    }
    general_backward(stream.cuda(), call);
  });
}

}  // namespace ringtrain::cuda
