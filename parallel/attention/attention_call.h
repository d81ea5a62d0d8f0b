// One call of attention over the ring: it passes each block that the ring brings to the kernels, forward and backward.
// The model's layers (layers/ring_attention.h) and programs with their own tensors (attention_over_ring.h) use it.
#pragma once

#include <functional>
#include <span>

#include "kernels/attention.h"
#include "parallel/ring/ring.h"

namespace ringtrain {

/// The inputs and outputs of backward: dout [B, T, H, D]; lse and delta [B, H, T], of whole rows, never of a block; dq
/// [B, T, H, D] and dkv [2, B, T, G, D] of the accumulator.
struct AttentionGradients {
  ConstTensorView dout, lse, delta;
  TensorView dq, dkv;
};

/// B sequences, T tokens of this rank in each, H query heads, G key/value heads, D head size. Collective: its passes
/// are the ring's. The memory of its views must not change until the passes return.
struct AttentionCall {
  Stream& stream;
  Ring& ring;
  RingCall pass;
  AttentionShape shape;
  ConstTensorView query;              // [B, T, H, D]
  TensorView key_value;               // [2, B, T, G, D]
  std::span<const Segment> segments;  // the positions of this rank's tokens
  TensorView documents;               // int32 [B, T], or empty
  TensorView workspace;
  RingVisitor watch = {};  // called after each block, if there is one

  /// Sets the state to that of all blocks; the last block finalizes it if result.finalize.
  void forward(const AttentionState& state, AttentionPhase result) const;
  /// Sets dq and dkv to the gradients of queries, keys, and values; their content is ignored. overlap: see
  /// Ring::backward.
  void backward(const AttentionGradients& gradients, const std::function<void()>& overlap = {}) const;
};

}  // namespace ringtrain
