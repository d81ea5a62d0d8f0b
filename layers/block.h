// One transformer block: ring attention, then feedforward, each normed first and added to the residual stream. Asks for
// its weights before use and releases them after.
#pragma once

#include "framework/dump/tensor_dump.h"
#include "framework/profile/trace.h"
#include "layers/feedforward.h"
#include "layers/ring_attention.h"

namespace ringtrain {

class Block {
 public:
  /// All that is given by reference must outlive it. Workspaces are shared by all blocks.
  Block(const ModelSpec& spec, ParameterStore& parameters, const BlockIds& ids, Ring& ring, AttentionAudit& audit,
        const TensorView& attention_workspace, const FeedforwardWorkspace& feedforward_workspace,
        const LoraWorkspace& lora, bool deterministic)
      : parameters_(&parameters),
        bucket_(ids.bucket),
        attention_(spec, parameters, ids, ring, audit, attention_workspace, lora, deterministic),
        feedforward_(spec, parameters, ids, feedforward_workspace, lora) {}

  /// Returns the bucket whose gradients backward completes.
  int bucket() const { return bucket_; }

  /// Fills t.output from t.input. cache (may be null): as of RingAttention.
  void forward(Stream& stream, const DeviceBatch& batch, const BlockTensors& t, KeyValueCache* cache) {
    const Span span(stream.trace(), "layer forward", {{"layer", bucket_ - 1}});
    const WeightsGuard weights(*parameters_, bucket_);
    attention_.forward(stream, batch, t, cache);
    feedforward_.forward(stream, t);
    dump(stream, {.name = "output", .layer = bucket_ - 1}, t.output);
  }
  /// t.residual_gradient, the gradient of t.output, becomes that of t.input; adds the weights' gradients.
  void backward(Stream& stream, const DeviceBatch& batch, const BlockTensors& t, const Saved& saved) {
    const Span span(stream.trace(), "layer backward", {{"layer", bucket_ - 1}});
    const WeightsGuard weights(*parameters_, bucket_);
    dump(stream, {.name = "output", .layer = bucket_ - 1, .gradient = true}, t.residual_gradient);
    attention_.restore(stream, batch, t, saved);
    feedforward_.backward(stream, t, saved);
    attention_.backward(stream, batch, t);
  }

 private:
  ParameterStore* parameters_;
  int bucket_;
  RingAttention attention_;
  Feedforward feedforward_;
};

}  // namespace ringtrain
