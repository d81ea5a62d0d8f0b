// The second half of a block, a chunk of tokens at a time (Liu and Abbeel, "Blockwise Parallel Transformer", 2023):
// x = y + Wdown act(norm(y)), with act = silu(Wgate h) * (Wup h) where it is gated (or gelu in silu's place), else
// gelu(Wup h). There may be a norm of what Wdown gives, beside that of y or in its place. Chunks are cut
// alike in forward and backward; what is chunk-sized lives in one workspace that all layers share.
#pragma once

#include "layers/activations.h"
#include "layers/linear.h"
#include "layers/norm.h"

namespace ringtrain {

/// Chunk-sized scratch: 2 C + 3 F + norm statistics a token (without a gate: 2 F; with gate and up kept: F), under
/// Tag::workspace, or, where a chunk is all tokens, under Tag::activations. Without training: no gradient.
class FeedforwardWorkspace {
 public:
  FeedforwardWorkspace(Allocator& allocator, const ModelSpec& spec, const ExecutionShape& shape, const Saved& saved,
                       bool trains);

  /// One chunk's tensors, each [n, C] or [n, F], or none.
  struct Chunk {
    TensorView input, normed, normed_gradient, statistics, gate, up, product;
    std::int64_t begin = 0;  // its first token
  };
  /// Returns the tokens of a chunk.
  std::int64_t chunk() const { return chunk_; }
  /// Returns the chunk of tokens [begin, end) of a block.
  Chunk chunk_of(const BlockTensors& t, std::int64_t begin, std::int64_t end) const;

 private:
  std::int64_t chunk_;
  Tensor normed_, normed_gradient_, statistics_, gate_, up_, product_;
};

class Feedforward {
 public:
  Feedforward(const ModelSpec& spec, ParameterStore& parameters, const BlockIds& ids,
              const FeedforwardWorkspace& workspace, const LoraWorkspace& lora);

  /// Fills t.output from t.after_attention; the two may not be the same memory.
  void forward(Stream& stream, const BlockTensors& t) const;
  /// t.residual_gradient, the gradient of t.output, becomes that of t.after_attention. Overwrites t.gate and t.up.
  void backward(Stream& stream, const BlockTensors& t, const Saved& saved) const;

 private:
  using Chunk = FeedforwardWorkspace::Chunk;
  void normalise(Stream& stream, const Chunk& c) const;
  void expand(Stream& stream, const Chunk& c) const;
  void activate(Stream& stream, const Chunk& c) const;
  /// Returns what the projections read: the norm's output, or the input where there is no norm.
  const TensorView& input_of(const Chunk& c) const;
  /// Returns the gradient of the product with Wdown, from that of the output; where it is normed, which takes making it
  /// again, in the place of c.normed.
  TensorView output_gradient(Stream& stream, const Chunk& c, const TensorView& gradient) const;
  /// Takes a chunk's rows of a tensor, or of its gradient, into the stream's dump, if there is one.
  void dump_rows(Stream& stream, const char* name, const Chunk& c, const ConstTensorView& x,
                 bool gradient = false) const;

  int layer_;
  bool gated_;
  Activation activation_;
  Norm norm_, output_norm_;
  Linear gate_, up_, down_;
  double factor_;  // of what is added to the residual stream
  const FeedforwardWorkspace* workspace_;
};

}  // namespace ringtrain
