// The first half of a block: y = x + Wo attention(norm(x)), or with a norm or a factor on Wo's output. Attention meets
// one block of keys and values at a time as the ring delivers them (Liu et al., "Ring Attention with Blockwise
// Transformers", 2023). The ring controls the order and the communication; AttentionCall provides its visitor.
#pragma once

#include "layers/audit/attention_audit.h"
#include "layers/block_half.h"
#include "layers/device_batch.h"
#include "layers/key_value_cache.h"
#include "parallel/attention/attention_call.h"

namespace ringtrain {

class RingAttention : BlockHalf {
 public:
  /// All layers share ring, audit, workspace (uint8, at least workspace_bytes), and lora.
  RingAttention(const ModelSpec& spec, ParameterStore& parameters, const BlockIds& ids, Ring& ring,
                AttentionAudit& audit, const TensorView& workspace, const LoraWorkspace& lora, bool deterministic);

  /// Returns the workspace bytes that the largest micro-batches of shape need.
  static std::size_t workspace_bytes(const Stream& stream, const ModelSpec& spec, const ExecutionShape& shape);

  /// Fills t.after_attention from t.input, and all tensors that backward can use. cache (may be null) keeps the keys
  /// and values of a prompt. After its begin_token(), the new token's query meets everything that it holds.
  void forward(Stream& stream, const DeviceBatch& batch, const BlockTensors& t, KeyValueCache* cache);
  /// Recomputes, before backward, the forward tensors that the plan did not keep.
  void restore(Stream& stream, const DeviceBatch& batch, const BlockTensors& t, const Saved& saved);
  /// Adds the gradient of the path through attention to t.residual_gradient, which holds the gradient of
  /// t.after_attention and becomes the gradient of t.input. Overwrites t.attention, t.key_value, and t.after_attention.
  void backward(Stream& stream, const DeviceBatch& batch, const BlockTensors& t);

 private:
  void project(Stream& stream, const DeviceBatch& batch, const BlockTensors& t) const;
  /// Turns projections into queries and keys: norm and rotation, if the layer has them.
  void finish_heads(Stream& stream, const DeviceBatch& batch, const BlockTensors& t) const;
  void attend(Stream& stream, const DeviceBatch& batch, const BlockTensors& t);
  /// Returns the sinks, or an empty view.
  TensorView sinks() const;
  AttentionCall over_ring(Stream& stream, const DeviceBatch& batch, const BlockTensors& t) const;
  /// Turns the sum, a gradient of rotated heads, into that of the heads; only rounds it if the layer does not rotate.
  void rotate_back(Stream& stream, const DeviceBatch& batch, const TensorView& gradient, const TensorView& sum) const;
  void query_backward(Stream& stream, const DeviceBatch& batch, const BlockTensors& t);
  void key_value_backward(Stream& stream, const DeviceBatch& batch, const BlockTensors& t);

  AttentionShape shape_;  // B is set per call
  Norm query_norm_, key_norm_;
  Linear query_, key_, value_;
  bool rope_;
  ParameterStore* parameters_;
  int sinks_;                             // a parameter's id, or -1
  int frequencies_;                       // which of the model's ropes, if the layer rotates
  std::int64_t query_width_, key_width_;  // elements that their norms cover
  RingCall pass_;
  Ring* ring_;
  AttentionAudit* audit_;
  TensorView workspace_;
};

}  // namespace ringtrain
