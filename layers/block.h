// One transformer block: ring attention, then feedforward; each is added to the residual stream, and each normalizes
// its input first. The block acquires its weights before use and releases them afterwards.
#pragma once

#include "framework/dump/tensor_dump.h"
#include "framework/profile/trace.h"
#include "layers/feedforward.h"
#include "layers/ring_attention.h"

namespace ringtrain {

class Block {
 public:
  /// Everything passed by reference must outlive the block. All blocks share the workspaces.
  Block(const ModelSpec& spec, ParameterStore& parameters, const BlockIds& ids, Ring& ring, AttentionAudit& audit,
        const TensorView& attention_workspace, const FeedforwardWorkspace& feedforward_workspace,
        const LoraWorkspace& lora, bool deterministic)
      : parameters_(&parameters),
        bucket_(ids.bucket),
        attention_(spec, parameters, ids, ring, audit, attention_workspace, lora, deterministic),
        feedforward_(spec, parameters, ids, feedforward_workspace, lora) {}

  /// Returns the bucket whose gradients backward completes.
  int bucket() const { return bucket_; }

  /// Fills t.output from t.input. cache (may be null): see RingAttention.
  void forward(Stream& stream, const DeviceBatch& batch, const BlockTensors& t, KeyValueCache* cache) {
    const Span span(stream.trace(), "layer forward", {{"layer", bucket_ - 1}});
    const WeightsGuard weights(*parameters_, bucket_);
    attention_.forward(stream, batch, t, cache);
    feedforward_.forward(stream, t);
    dump(stream, {.name = "output", .layer = bucket_ - 1}, t.output);
  }
  /// Turns t.residual_gradient from the gradient of t.output into that of t.input; adds the weights' gradients.
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
