// One call of attention over the ring: it gives each block that the ring brings to the kernels, forward and backward.
// The model's layers (layers/ring_attention.h) and programs with tensors of their own (attention_over_ring.h) compute
// through it.
#pragma once

#include <functional>
#include <span>

#include "kernels/attention.h"
#include "parallel/ring/ring.h"

namespace ringtrain {

/// What backward reads and adds up: dout [B, T, H, D]; lse and delta [B, H, T], of whole rows, never of a block; dq
/// [B, T, H, D] and dkv [2, B, T, G, D] of the accumulator.
struct AttentionGradients {
  ConstTensorView dout, lse, delta;
  TensorView dq, dkv;
};

/// B sequences, T tokens of this rank in each, H query heads, G key/value heads, D head size. Collective: its passes
/// are the ring's. All that it views must stay as it is until they return.
struct AttentionCall {
  Stream& stream;
  Ring& ring;
  RingCall pass;
  AttentionShape shape;
  ConstTensorView query;              // [B, T, H, D]
  TensorView key_value;               // [2, B, T, G, D]
  std::span<const Segment> segments;  // where this rank's tokens stand
  TensorView documents;               // int32 [B, T], or none
  TensorView workspace;
  RingVisitor watch = {};  // called after each block, if there is one

  /// Makes the state that of all blocks; the last one finalizes it if result.finalize.
  void forward(const AttentionState& state, AttentionPhase result) const;
  /// Makes dq and dkv the gradients of queries, keys and values, whatever they held. overlap: see Ring::backward.
  void backward(const AttentionGradients& gradients, const std::function<void()>& overlap = {}) const;
};

}  // namespace ringtrain
