// The second half of a block, computed a chunk of tokens at a time (Liu and Abbeel, "Blockwise Parallel Transformer",
// 2023): x = y + Wdown act(norm(y)), with act = silu(Wgate h) * (Wup h) if it is gated (or gelu instead of silu),
// otherwise gelu(Wup h). Wdown's output may have a norm too, in addition to y's or instead of it. Forward and backward
// use the same chunks; chunk-sized tensors live in one workspace that all layers share.
#pragma once

#include "layers/block_half.h"

namespace ringtrain {

/// Chunk-sized scratch: 2 C + 3 F + norm statistics per token (without a gate: 2 F; with gate and up kept: F), under
/// Tag::workspace, or, if feedforward_chunk is 0, under Tag::activations. No gradient without training.
class FeedforwardWorkspace {
 public:
  FeedforwardWorkspace(Allocator& allocator, const ModelSpec& spec, const ExecutionShape& shape, const Saved& saved,
                       bool trains);

  /// One chunk's tensors, each [n, C] or [n, F], or empty.
  struct Chunk : HalfInput {
    TensorView normed_gradient, gate, up, product;
    /// Returns the activation's argument. factor() multiplies its value; without a gate, it is empty.
    const TensorView& activated() const { return gate.empty() ? up : gate; }
    TensorView factor() const { return gate.empty() ? TensorView{} : up; }
  };
  /// Returns the number of tokens in a chunk.
  std::int64_t chunk() const { return chunk_; }
  /// Returns the chunk of tokens [begin, end) of a block.
  Chunk chunk_of(const BlockTensors& t, std::int64_t begin, std::int64_t end) const;

 private:
  std::int64_t chunk_;
  Tensor normed_, normed_gradient_, statistics_, gate_, up_, product_;
};

class Feedforward : BlockHalf {
 public:
  Feedforward(const ModelSpec& spec, ParameterStore& parameters, const BlockIds& ids,
              const FeedforwardWorkspace& workspace, const LoraWorkspace& lora);

  /// Fills t.output from t.after_attention; the two must not share memory.
  void forward(Stream& stream, const BlockTensors& t) const;
  /// Turns t.residual_gradient from the gradient of t.output into that of t.after_attention. Overwrites t.gate and
  /// t.up.
  void backward(Stream& stream, const BlockTensors& t, const Saved& saved) const;

 private:
  using Chunk = FeedforwardWorkspace::Chunk;
  void expand(Stream& stream, const Chunk& c) const;
  void activate(Stream& stream, const Chunk& c) const;

  bool gated_;
  Activation activation_;
  Linear gate_, up_;
  const FeedforwardWorkspace* workspace_;
};

}  // namespace ringtrain
