// The first half of a block: y = x + Wo attention(norm(x)), or with a norm or a factor of what Wo gives, where
// attention meets one block of keys and values at a time as the ring brings them (Liu et al., "Ring Attention with
// Blockwise Transformers", 2023). The ring owns the order and the communication; AttentionCall gives it the visitor.
#pragma once

#include "layers/activations.h"
#include "layers/audit/attention_audit.h"
#include "layers/device_batch.h"
#include "layers/key_value_cache.h"
#include "layers/linear.h"
#include "layers/norm.h"
#include "parallel/attention/attention_call.h"

namespace ringtrain {

class RingAttention {
 public:
  /// ring, audit, workspace (uint8, at least workspace_bytes) and lora are shared by all layers.
  RingAttention(const ModelSpec& spec, ParameterStore& parameters, const BlockIds& ids, int layer, Ring& ring,
                AttentionAudit& audit, const TensorView& workspace, const LoraWorkspace& lora, bool deterministic);

  /// Returns the bytes of workspace for the largest micro-batches of shape.
  static std::size_t workspace_bytes(const Stream& stream, const ModelSpec& spec, const ExecutionShape& shape);

  /// Fills t.after_attention from t.input, and on the way all that backward can use. cache (may be null): keeps the
  /// keys and values of a prompt. After its begin_token(), the new token's query meets all that it holds.
  void forward(Stream& stream, const DeviceBatch& batch, const BlockTensors& t, KeyValueCache* cache);
  /// Makes again, before backward, what forward made and the plan did not keep.
  void restore(Stream& stream, const DeviceBatch& batch, const BlockTensors& t, const Saved& saved);
  /// Adds to t.residual_gradient, which holds the gradient of t.after_attention, that of the path through attention:
  /// it becomes the gradient of t.input. Overwrites t.attention, t.key_value and t.after_attention.
  void backward(Stream& stream, const DeviceBatch& batch, const BlockTensors& t);

 private:
  void normalise(Stream& stream, const BlockTensors& t) const;
  /// Returns what the projections read: the norm's output, or the input where there is no norm.
  const TensorView& input_of(const BlockTensors& t) const;
  /// Returns the gradient of the product with Wo, from t.residual_gradient; where it is normed, which takes making it
  /// again.
  TensorView output_gradient(Stream& stream, const BlockTensors& t) const;
  void project(Stream& stream, const DeviceBatch& batch, const BlockTensors& t) const;
  /// Makes queries and keys of their projections: norm and rotation, where the layer has them.
  void finish_heads(Stream& stream, const DeviceBatch& batch, const BlockTensors& t) const;
  void attend(Stream& stream, const DeviceBatch& batch, const BlockTensors& t);
  /// Returns the sinks, or nothing.
  TensorView sinks() const;
  AttentionCall over_ring(Stream& stream, const DeviceBatch& batch, const BlockTensors& t) const;
  void add_to_residual(Stream& stream, const BlockTensors& t) const;
  /// Returns where the gradient of what the projections read is added up: without a norm the input is the residual
  /// stream itself; else in a tensor that the feedforward is done with.
  const TensorView& input_gradient(const BlockTensors& t) const;
  /// Makes the gradient of heads of the sum for the rotated ones, or only rounds it where the layer does not rotate.
  void rotate_back(Stream& stream, const DeviceBatch& batch, const TensorView& gradient, const TensorView& sum) const;
  void query_backward(Stream& stream, const DeviceBatch& batch, const BlockTensors& t);
  void key_value_backward(Stream& stream, const DeviceBatch& batch, const BlockTensors& t);
  /// Takes a tensor, or its gradient, into the stream's dump, if there is one.
  void dump_tensor(Stream& stream, const char* name, const ConstTensorView& x) const;
  void dump_gradient(Stream& stream, const char* name, const ConstTensorView& x) const;

  AttentionShape shape_;  // B is a call's
  Norm norm_, output_norm_, query_norm_, key_norm_;
  Linear query_, key_, value_, output_;
  bool rope_;
  double residual_factor_;
  ParameterStore* parameters_;
  int sinks_;                             // a parameter's id, or -1
  int frequencies_;                       // which of the model's, where it rotates
  std::int64_t query_width_, key_width_;  // elements that their norms go over
  int layer_;
  RingCall pass_;
  Ring* ring_;
  AttentionAudit* audit_;
  TensorView workspace_;
};

}  // namespace ringtrain
