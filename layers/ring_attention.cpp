#include "layers/ring_attention.h"

#include <algorithm>

#include "framework/profile/trace.h"
#include "kernels/attention_sinks.h"
#include "kernels/elementwise.h"
#include "kernels/rope.h"

namespace ringtrain {

namespace {

/// Returns the index of a layer's mask among the distinct masks; the ring has a schedule for each.
int schedule_of(const ModelSpec& spec, int layer) {
  const std::vector<MaskedLayers> all = layers_by_mask(spec.layers);
  return static_cast<int>(std::ranges::find(all, spec.layers[layer].mask, &MaskedLayers::mask) - all.begin());
}

/// Returns keys (0) or values (1) of [2, B, T, G, D], flattened to [B * T, G * D].
TensorView flat_part(const TensorView& key_value, int which) {
  const Shape& s = key_value.shape;
  return key_value.select(which).reshape({s[1] * s[2], s[3] * s[4]});
}

/// Returns [n, heads * D] as [n, heads, D].
TensorView split_heads(const TensorView& x, std::int64_t D) {
  return x.reshape({x.dim(0), x.dim(1) / D, D});
}

/// Returns [n, heads * D] as rows of `width` elements: a row for each head, or the same again.
TensorView rows_of(const TensorView& x, std::int64_t width) {
  return x.reshape({x.numel() / width, width});
}

}  // namespace

RingAttention::RingAttention(const ModelSpec& spec, ParameterStore& parameters, const BlockIds& ids, Ring& ring,
                             AttentionAudit& audit, const TensorView& workspace, const LoraWorkspace& lora,
                             bool deterministic)
    : BlockHalf(spec, parameters, ids.bucket - 1, {"attention_norm", "attention_output"}, ids.attention_norm,
                ids.attention_output, ids.attention_output_norm, lora),
      shape_(attention_shape(spec, layer_)),
      query_norm_(parameters, ids.query_norm, spec.query_key_norm_spec()),
      key_norm_(parameters, ids.key_norm, spec.query_key_norm_spec()),
      query_(parameters, ids.query, &lora),
      key_(parameters, ids.key, &lora),
      value_(parameters, ids.value, &lora),
      rope_(spec.layers[layer_].rope),
      parameters_(&parameters),
      sinks_(ids.sinks),
      frequencies_(spec.layers[layer_].frequencies),
      query_width_(spec.query_key_norm_width(spec.num_attention_heads)),
      key_width_(spec.query_key_norm_width(spec.num_key_value_heads)),
      pass_(layer_, schedule_of(spec, layer_)),
      ring_(&ring),
      audit_(&audit),
      workspace_(workspace) {
  shape_.deterministic = deterministic;
}

std::size_t RingAttention::workspace_bytes(const Stream& stream, const ModelSpec& spec, const ExecutionShape& shape) {
  const auto bytes = [&](std::int64_t B, std::int64_t Tq, std::int64_t Tk) {
    AttentionShape attention = attention_shape(spec, /*layer=*/0);
    attention.B = B;
    attention.deterministic = shape.deterministic;
    return attention_workspace_bytes(stream, attention, shape.dtype, Tq, Tk);
  };
  return std::max(bytes(shape.max_sequences, shape.max_tokens, shape.max_ring_tokens),
                  bytes(shape.max_evaluation_sequences, shape.max_evaluation_tokens, shape.max_evaluation_ring_tokens));
}

void RingAttention::forward(Stream& stream, const DeviceBatch& batch, const BlockTensors& t, KeyValueCache* cache) {
  const Span span(stream.trace(), "attention");
  normalize(stream, t);
  project(stream, batch, t);
  if (cache != nullptr && cache->decodes()) {
    cache->attend(stream, layer_, t.query, t.key_value, sinks(), t.attention);
  } else {
    if (cache != nullptr) cache->store(stream, layer_, t.key_value);
    attend(stream, batch, t);
  }
  add_to_residual(stream, t, t.after_attention, t.attention);
  dump_tensor(stream, "attention_residual", t.after_attention);
}

void RingAttention::restore(Stream& stream, const DeviceBatch& batch, const BlockTensors& t, const Saved& saved) {
  const Span span(stream.trace(), "recompute");
  normalize(stream, t);
  if (saved.everything) {
    if (query_norm_.exists()) finish_heads(stream, batch, t);
    return;
  }
  project(stream, batch, t);
  if (!saved.attention) attend(stream, batch, t);
  add_to_residual(stream, t, t.after_attention, t.attention);
  dump_tensor(stream, "attention_residual", t.after_attention);
}

void RingAttention::project(Stream& stream, const DeviceBatch& batch, const BlockTensors& t) const {
  const TensorView& input = input_of(t);
  query_.forward(stream, query_norm_.exists() ? t.query_projection : t.query, input);
  key_.forward(stream, query_norm_.exists() ? t.key_projection : flat_part(t.key_value, 0), input);
  value_.forward(stream, flat_part(t.key_value, 1), input);
  dump_tensor(stream, "query_projection", query_norm_.exists() ? t.query_projection : t.query);
  dump_tensor(stream, "key_projection", query_norm_.exists() ? t.key_projection : flat_part(t.key_value, 0));
  dump_tensor(stream, "value", flat_part(t.key_value, 1));
  finish_heads(stream, batch, t);
}

void RingAttention::finish_heads(Stream& stream, const DeviceBatch& batch, const BlockTensors& t) const {
  const std::int64_t D = shape_.D;
  const TensorView key = flat_part(t.key_value, 0);
  if (query_norm_.exists()) {
    query_norm_.forward(stream, rows_of(t.query, query_width_), t.query_statistics,
                        rows_of(t.query_projection, query_width_));
    key_norm_.forward(stream, rows_of(key, key_width_), t.key_statistics, rows_of(t.key_projection, key_width_));
  }
  if (rope_) {
    rope_forward(stream, split_heads(t.query, D), batch.rope_table(frequencies_));
    rope_forward(stream, split_heads(key, D), batch.rope_table(frequencies_));
  }
  dump_tensor(stream, "query", t.query);
  dump_tensor(stream, "key", key);
}

AttentionCall RingAttention::over_ring(Stream& stream, const DeviceBatch& batch, const BlockTensors& t) const {
  AttentionShape shape = shape_;
  shape.B = batch.B();
  const TensorView query = t.query.reshape({shape.B, batch.T(), shape.H, shape.D});
  const AttentionTokens tokens = batch.token_positions();
  return {stream, *ring_, pass_, shape, query, t.key_value, tokens.segments, batch.documents(), workspace_};
}

void RingAttention::attend(Stream& stream, const DeviceBatch& batch, const BlockTensors& t) {
  AttentionCall call = over_ring(stream, batch, t);
  const TensorView attention = t.attention.reshape(call.query.shape);
  const AttentionState state{.o = t.attention_sum.reshape(call.query.shape), .m = t.logsumexp, .l = t.row_sum};
  audit_->begin_forward(stream, layer_, call.query);
  call.watch = [&](const RingBlock& block) { audit_->add_forward(stream, layer_, block); };
  call.forward(state, {.finalize = sinks_ < 0, .out = attention, .lse = t.logsumexp});
  if (sinks_ >= 0) attention_finalize(stream, state, attention, t.logsumexp, sinks());
  audit_->end_forward(stream, layer_, attention, t.logsumexp, sinks());
  dump_tensor(stream, "attention", t.attention);
  dump_tensor(stream, "logsumexp", t.logsumexp);
}

TensorView RingAttention::sinks() const {
  return sinks_ >= 0 ? parameters_->weight(sinks_) : TensorView{};
}

void RingAttention::backward(Stream& stream, const DeviceBatch& batch, const BlockTensors& t) {
  const Span span(stream.trace(), "attention backward");
  dump_gradient(stream, "attention_residual", t.residual_gradient);
  // The feedforward's backward was the last reader of t.after_attention.
  const TensorView dy =
      output_backward_input(stream, t, t.attention_gradient, t.residual_gradient, t.attention, t.after_attention);
  output_backward_weight(stream, t, dy, t.attention);
  dump_gradient(stream, "attention", t.attention_gradient);

  AttentionCall call = over_ring(stream, batch, t);
  const Shape& heads = call.query.shape;
  const TensorView attention = t.attention.reshape(heads), dout = t.attention_gradient.reshape(heads);
  audit_->begin_backward(stream, layer_, attention, dout);
  attention_delta(stream, t.delta, dout, attention);
  dump_tensor(stream, "delta", t.delta);
  if (sinks_ >= 0 && parameters_->trains(sinks_)) {
    attention_sinks_backward(stream, parameters_->gradient_to_add_to(sinks_), t.logsumexp, t.delta, sinks());
  }
  call.watch = [&](const RingBlock& block) { audit_->add_backward(stream, layer_, block); };
  call.backward({.dout = dout,
                 .lse = t.logsumexp,
                 .delta = t.delta,
                 .dq = t.attention_sum.reshape(heads),
                 .dkv = t.key_value_gradient_sum},
                /*overlap=*/[&] { query_backward(stream, batch, t); });
  key_value_backward(stream, batch, t);
  input_backward(stream, t, t.residual_gradient, t.after_attention);
}

void RingAttention::rotate_back(Stream& stream, const DeviceBatch& batch, const TensorView& gradient,
                                const TensorView& sum) const {
  if (!rope_) return convert(stream, gradient, sum);
  rope_backward(stream, split_heads(gradient, shape_.D), split_heads(sum, shape_.D), batch.rope_table(frequencies_));
}

void RingAttention::query_backward(Stream& stream, const DeviceBatch& batch, const BlockTensors& t) {
  const Span span(stream.trace(), "query backward");
  const TensorView &dquery_sum = t.attention_sum, &dquery = t.attention;  // O is no longer needed
  audit_->end_backward(stream, layer_, dquery_sum.reshape({batch.B(), batch.T(), shape_.H, shape_.D}));
  dump_gradient(stream, "query", dquery_sum);
  rotate_back(stream, batch, dquery, dquery_sum);
  if (query_norm_.exists()) {
    const TensorView gradient = rows_of(dquery, query_width_);
    query_norm_.backward(stream, gradient, gradient, rows_of(t.query_projection, query_width_), t.query_statistics,
                         /*accumulate=*/false);
  }
  dump_gradient(stream, "query_projection", dquery);
  query_.backward_weight(stream, dquery, input_of(t));
  query_.backward_input(stream, input_gradient(t.residual_gradient, t.after_attention), dquery,
                        /*accumulate=*/!norm_.exists());
}

void RingAttention::key_value_backward(Stream& stream, const DeviceBatch& batch, const BlockTensors& t) {
  const TensorView dkey_sum = flat_part(t.key_value_gradient_sum, 0), dkey = flat_part(t.key_value_gradient, 0);
  const TensorView dvalue_sum = flat_part(t.key_value_gradient_sum, 1), dvalue = flat_part(t.key_value_gradient, 1);
  dump_gradient(stream, "key", dkey_sum);
  dump_gradient(stream, "value", dvalue_sum);
  rotate_back(stream, batch, dkey, dkey_sum);
  if (query_norm_.exists()) {
    const TensorView gradient = rows_of(dkey, key_width_);
    key_norm_.backward(stream, gradient, gradient, rows_of(t.key_projection, key_width_), t.key_statistics,
                       /*accumulate=*/false);
  }
  dump_gradient(stream, "key_projection", dkey);
  convert(stream, dvalue, dvalue_sum);
  const TensorView into = input_gradient(t.residual_gradient, t.after_attention);
  key_.backward_weight(stream, dkey, input_of(t));
  value_.backward_weight(stream, dvalue, input_of(t));
  key_.backward_input(stream, into, dkey, /*accumulate=*/true);
  value_.backward_input(stream, into, dvalue, /*accumulate=*/true);
}

}  // namespace ringtrain
