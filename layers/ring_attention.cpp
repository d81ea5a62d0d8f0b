#include "layers/ring_attention.h"

#include <algorithm>

#include "framework/dump/tensor_dump.h"
#include "framework/profile/trace.h"
#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "kernels/rope.h"

namespace ringtrain {

namespace {

AttentionShape attention_shape(const ModelSpec& spec, int layer, bool deterministic, std::int64_t B) {
  return {.B = B,
          .H = spec.num_attention_heads,
          .G = spec.num_key_value_heads,
          .D = spec.head_dim,
          .scale = spec.attention_scale,
          .mask = spec.layers[layer].mask,
          .deterministic = deterministic};
}

/// Returns the place of a layer's mask among those that differ, for each of which the ring has a schedule.
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

RingAttention::RingAttention(const ModelSpec& spec, ParameterStore& parameters, const BlockIds& ids, int layer,
                             Ring& ring, AttentionAudit& audit, const TensorView& workspace, const LoraWorkspace& lora,
                             bool deterministic)
    : shape_(attention_shape(spec, layer, deterministic, 0)),
      norm_(parameters, ids.attention_norm, spec.norm),
      output_norm_(parameters, ids.attention_output_norm, spec.norm),
      query_norm_(parameters, ids.query_norm, spec.query_key_norm_spec()),
      key_norm_(parameters, ids.key_norm, spec.query_key_norm_spec()),
      query_(parameters, ids.query, &lora),
      key_(parameters, ids.key, &lora),
      value_(parameters, ids.value, &lora),
      output_(parameters, ids.attention_output, &lora),
      query_key_norm_(spec.query_key_norm != QueryKeyNorm::none),
      rope_(spec.layers[layer].rope),
      frequencies_(spec.layers[layer].frequencies),
      query_width_(spec.query_key_norm_width(spec.num_attention_heads)),
      key_width_(spec.query_key_norm_width(spec.num_key_value_heads)),
      layer_(layer),
      pass_(layer, schedule_of(spec, layer)),
      ring_(&ring),
      audit_(&audit),
      workspace_(workspace) {}

std::size_t RingAttention::workspace_bytes(const Stream& stream, const ModelSpec& spec, const ExecutionShape& shape) {
  const auto bytes = [&](std::int64_t B, std::int64_t Tq, std::int64_t Tk) {
    return attention_workspace_bytes(stream, attention_shape(spec, /*layer=*/0, shape.deterministic, B), shape.dtype,
                                     Tq, Tk);
  };
  return std::max(bytes(shape.max_sequences, shape.max_tokens, shape.max_ring_tokens),
                  bytes(shape.max_evaluation_sequences, shape.max_evaluation_tokens, shape.max_evaluation_ring_tokens));
}

void RingAttention::forward(Stream& stream, const DeviceBatch& batch, const BlockTensors& t, KeyValueCache* cache) {
  const Span span(stream.trace(), "attention");
  normalise(stream, t);
  project(stream, batch, t);
  if (cache != nullptr) cache->store(stream, layer_, t.key_value);
  attend(stream, batch, t);
  add_to_residual(stream, t);
}

void RingAttention::decode(Stream& stream, const DeviceBatch& batch, const BlockTensors& t, KeyValueCache& cache) {
  const Span span(stream.trace(), "attention");
  normalise(stream, t);
  project(stream, batch, t);
  cache.attend(stream, layer_, t.query, t.key_value, t.attention);
  add_to_residual(stream, t);
}

void RingAttention::restore(Stream& stream, const DeviceBatch& batch, const BlockTensors& t, const Saved& saved) {
  const Span span(stream.trace(), "recompute");
  normalise(stream, t);
  if (saved.everything) {
    if (query_key_norm_) finish_heads(stream, batch, t);
    return;
  }
  project(stream, batch, t);
  if (!saved.attention) attend(stream, batch, t);
  add_to_residual(stream, t);
}

void RingAttention::dump_tensor(Stream& stream, const char* name, const ConstTensorView& x) const {
  dump(stream, {.name = name, .layer = layer_}, x);
}

void RingAttention::dump_gradient(Stream& stream, const char* name, const ConstTensorView& x) const {
  dump(stream, {.name = name, .layer = layer_, .gradient = true}, x);
}

void RingAttention::normalise(Stream& stream, const BlockTensors& t) const {
  if (!norm_.exists()) return;
  norm_.forward(stream, t.normed, t.statistics, t.input);
  dump_tensor(stream, "attention_norm", t.normed);
}

const TensorView& RingAttention::input_of(const BlockTensors& t) const {
  return norm_.exists() ? t.normed : t.input;
}

void RingAttention::project(Stream& stream, const DeviceBatch& batch, const BlockTensors& t) const {
  const TensorView& input = input_of(t);
  query_.forward(stream, query_key_norm_ ? t.query_projection : t.query, input);
  key_.forward(stream, query_key_norm_ ? t.key_projection : flat_part(t.key_value, 0), input);
  value_.forward(stream, flat_part(t.key_value, 1), input);
  dump_tensor(stream, "query_projection", query_key_norm_ ? t.query_projection : t.query);
  dump_tensor(stream, "key_projection", query_key_norm_ ? t.key_projection : flat_part(t.key_value, 0));
  dump_tensor(stream, "value", flat_part(t.key_value, 1));
  finish_heads(stream, batch, t);
}

void RingAttention::finish_heads(Stream& stream, const DeviceBatch& batch, const BlockTensors& t) const {
  const std::int64_t D = shape_.D;
  const TensorView key = flat_part(t.key_value, 0);
  if (query_key_norm_) {
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

AttentionShape RingAttention::shape_of(std::int64_t sequences) const {
  AttentionShape shape = shape_;
  shape.B = sequences;
  return shape;
}

std::int64_t RingAttention::flops(std::int64_t pairs, std::int64_t products) const {
  return 2 * products * pairs * shape_.D * shape_.H;
}

void RingAttention::attend(Stream& stream, const DeviceBatch& batch, const BlockTensors& t) {
  const AttentionShape shape = shape_of(batch.B());
  const Shape heads{batch.B(), batch.T(), shape.H, shape.D};
  const TensorView query = t.query.reshape(heads);
  audit_->begin_forward(stream, layer_, query);
  const AttentionState state{.o = t.attention_sum.reshape(heads), .m = t.logsumexp, .l = t.row_sum};
  ring_->forward(stream, pass_, t.key_value, batch.documents(), [&](const RingBlock& block) {
    const Span span(stream.trace(), "attention kernel",
                    {{"pairs", block.pairs}, {"flops", flops(block.pairs, /*products=*/2)}});
    const AttentionPhase phase{
        .init = block.first, .finalize = block.last, .out = t.attention.reshape(heads), .lse = t.logsumexp};
    attention_forward(stream, shape, query, block.k, block.v, batch.token_positions(), block.tokens, state, phase,
                      workspace_);
    audit_->add_forward(stream, layer_, block);
  });
  audit_->end_forward(stream, layer_, t.attention.reshape(heads), t.logsumexp);
  dump_tensor(stream, "attention", t.attention);
  dump_tensor(stream, "logsumexp", t.logsumexp);
}

void RingAttention::add_to_residual(Stream& stream, const BlockTensors& t) const {
  if (output_norm_.exists()) {
    output_.forward(stream, t.normed, t.attention);  // nobody reads the norm's output any more, or it is made again
    dump_tensor(stream, "attention_output", t.normed);
    output_norm_.forward(stream, t.after_attention, t.statistics, t.normed);
    add(stream, t.after_attention, t.input);
  } else {
    output_.forward(stream, t.after_attention, t.attention, /*residual=*/t.input);
  }
  dump_tensor(stream, "attention_residual", t.after_attention);
}

/// Uses t.normed and t.after_attention, which the feedforward's backward was the last to read.
TensorView RingAttention::output_gradient(Stream& stream, const BlockTensors& t) const {
  if (!output_norm_.exists()) return t.residual_gradient;
  const TensorView &product = t.normed, &into = t.after_attention;
  output_.forward(stream, product, t.attention);
  output_norm_.forward(stream, into, t.statistics, product);  // for its statistics
  output_norm_.backward(stream, into, t.residual_gradient, product, t.statistics, /*accumulate=*/false);
  dump_gradient(stream, "attention_output", into);
  return into;
}

void RingAttention::backward(Stream& stream, const DeviceBatch& batch, const BlockTensors& t) {
  const Span span(stream.trace(), "attention backward");
  const Shape heads{batch.B(), batch.T(), shape_.H, shape_.D};
  dump_gradient(stream, "attention_residual", t.residual_gradient);
  const TensorView projected = output_gradient(stream, t);
  output_.backward_weight(stream, projected, t.attention);
  output_.backward_input(stream, t.attention_gradient, projected, /*accumulate=*/false);
  dump_gradient(stream, "attention", t.attention_gradient);
  if (output_norm_.exists()) normalise(stream, t);  // its place had another use

  // Delta and the logsumexp are those of the whole row, never of a block.
  const TensorView query = t.query.reshape(heads), dout = t.attention_gradient.reshape(heads);
  audit_->begin_backward(stream, layer_, t.attention.reshape(heads), dout);
  const TensorView& delta = t.delta;
  attention_delta(stream, delta, dout, t.attention.reshape(heads));
  dump_tensor(stream, "delta", delta);
  const TensorView& dquery = t.attention;  // O is not needed any more
  const TensorView& dquery_sum = t.attention_sum;
  const TensorView& dkv_sum = t.key_value_gradient_sum;
  const TensorView dkey = flat_part(t.key_value_gradient, 0), dvalue = flat_part(t.key_value_gradient, 1);
  // Without a norm the input is the residual stream itself, whose gradient this adds to.
  const bool normed = norm_.exists();
  const TensorView& input = input_of(t);
  const TensorView& dinput = normed ? t.after_attention : t.residual_gradient;  // the feedforward is done with it
  const auto apply_rope_backward = [&](const TensorView& gradient, const TensorView& sum) {
    if (rope_) {
      rope_backward(stream, split_heads(gradient, shape_.D), split_heads(sum, shape_.D),
                    batch.rope_table(frequencies_));
    } else {
      convert(stream, gradient, sum);
    }
  };
  fill(stream, dquery_sum, 0.0);
  const auto visit = [&](const RingBlock& block) {
    if (block.pairs == 0) return;  // a part that no query here sees
    const Span kernel(stream.trace(), "attention kernel",
                      {{"pairs", block.pairs}, {"flops", flops(block.pairs, /*products=*/5)}});
    const AttentionTokens own{batch.token_positions().segments, block.sequences_of(batch.documents())};
    const auto of = [&](const TensorView& x) { return block.sequences_of(x); };
    attention_backward(stream, shape_of(block.sequences), of(query), block.k, block.v, of(dout), of(t.logsumexp),
                       of(delta), own, block.tokens, of(dquery_sum.reshape(heads)), block.dk, block.dv, workspace_,
                       block.accumulate);
    audit_->add_backward(stream, layer_, block);
  };
  const auto while_keys_return = [&] {
    const Span of_queries(stream.trace(), "query backward");
    audit_->end_backward(stream, layer_, dquery_sum.reshape(heads));
    dump_gradient(stream, "query", dquery_sum);
    apply_rope_backward(dquery, dquery_sum);
    if (query_key_norm_) {
      const TensorView gradient = rows_of(dquery, query_width_);
      query_norm_.backward(stream, gradient, gradient, rows_of(t.query_projection, query_width_), t.query_statistics,
                           /*accumulate=*/false);
    }
    dump_gradient(stream, "query_projection", dquery);
    query_.backward_weight(stream, dquery, input);
    query_.backward_input(stream, dinput, dquery, /*accumulate=*/!normed);
  };
  ring_->backward(stream, pass_, t.key_value, batch.documents(), dkv_sum, visit, while_keys_return);

  dump_gradient(stream, "key", flat_part(dkv_sum, 0));
  dump_gradient(stream, "value", flat_part(dkv_sum, 1));
  apply_rope_backward(dkey, flat_part(dkv_sum, 0));
  if (query_key_norm_) {
    const TensorView gradient = rows_of(dkey, key_width_);
    key_norm_.backward(stream, gradient, gradient, rows_of(t.key_projection, key_width_), t.key_statistics,
                       /*accumulate=*/false);
  }
  dump_gradient(stream, "key_projection", dkey);
  convert(stream, dvalue, flat_part(dkv_sum, 1));
  key_.backward_weight(stream, dkey, input);
  value_.backward_weight(stream, dvalue, input);
  key_.backward_input(stream, dinput, dkey, /*accumulate=*/true);
  value_.backward_input(stream, dinput, dvalue, /*accumulate=*/true);
  if (!normed) return;
  dump_gradient(stream, "attention_norm", dinput);
  norm_.backward(stream, t.residual_gradient, dinput, t.input, t.statistics, /*accumulate=*/true);
}

}  // namespace ringtrain
