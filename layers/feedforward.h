// The second half of a block, a chunk of tokens at a time (Liu and Abbeel, "Blockwise Parallel Transformer", 2023):
// x = y + Wdown act(norm(y)), with act = silu(Wgate h) * (Wup h) where it is gated (or gelu in silu's place), else
// gelu(Wup h). There may be a norm of what Wdown gives, beside that of y or in its place. Chunks are cut
// alike in forward and backward; what is chunk-sized lives in one workspace that all layers share.
#pragma once

#include "layers/block_half.h"

namespace ringtrain {

/// Chunk-sized scratch: 2 C + 3 F + norm statistics a token (without a gate: 2 F; with gate and up kept: F), under
/// Tag::workspace, or, where a chunk is all tokens, under Tag::activations. Without training: no gradient.
class FeedforwardWorkspace {
 public:
  FeedforwardWorkspace(Allocator& allocator, const ModelSpec& spec, const ExecutionShape& shape, const Saved& saved,
                       bool trains);

  /// One chunk's tensors, each [n, C] or [n, F], or none.
  struct Chunk : HalfInput {
    TensorView normed_gradient, gate, up, product;
  };
  /// Returns the tokens of a chunk.
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

  /// Fills t.output from t.after_attention; the two may not be the same memory.
  void forward(Stream& stream, const BlockTensors& t) const;
  /// t.residual_gradient, the gradient of t.output, becomes that of t.after_attention. Overwrites t.gate and t.up.
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
