#include "layers/activations.h"

#include <fmt/core.h>

#include <algorithm>

#include "layers/norm.h"

namespace ringtrain {

std::int64_t Activations::max_batch_tokens(const ExecutionShape& shape) {
  return std::max(shape.max_sequences * shape.max_tokens, shape.max_evaluation_sequences * shape.max_evaluation_tokens);
}

void Activations::PerLayer::make(Allocator& allocator, const char* name, DType dtype, const Shape& training,
                                 const Shape& largest, std::int64_t layers, bool keep, bool offload) {
  if (!keep) {
    tensors_.push_back(allocator.make(Tag::activations, fmt::format("shared {}", name), dtype, largest));
    return;
  }
  const std::int64_t resident = offload ? std::min(layers, resident_layers) : layers;
  for (std::int64_t layer = 0; layer + resident < layers; ++layer) {
    host_copies_.push_back(
        allocator.host().make(Tag::activations, fmt::format("offloaded layer {} {}", layer, name), dtype, training));
  }
  for (std::int64_t layer = 0; layer < resident; ++layer) {
    // Evaluation runs in layer 0's tensors, so layer 0's must also fit evaluation's micro-batches.
    tensors_.push_back(allocator.make(Tag::activations, fmt::format("layer {} {}", layer, name), dtype,
                                      layer == 0 ? largest : training));
  }
}

TensorView Activations::PerLayer::view_of(std::int64_t layer, const Shape& shape) const {
  return tensors_[static_cast<std::size_t>(layer) % tensors_.size()].view().prefix(shape);
}

TensorView Activations::PerLayer::resident(std::int64_t layer) const {
  return view_of(layer, host_copy(layer).shape);
}

void Activations::before_forward(Stream& stream, std::int64_t layer) {
  if (!offload_) return;
  if (copies_.stream() == nullptr) copies_.set_stream(stream);
  // This layer's forward also fills the input of the layer above it, which reuses the oldest resident layer's buffer.
  const std::int64_t oldest = layer + 1 - resident_layers;
  if (oldest >= 0 && offloads(oldest)) copies_.wait(sent_[oldest]);
}

void Activations::after_forward(std::int64_t layer) {
  if (!offloads(layer)) return;
  const CopyStream::Event done = copies_.record();
  for (const PerLayer* tensors : all_saved()) {
    if (!tensors->offloaded()) continue;
    sent_[layer] = copies_.copy(tensors->host_copy(layer), tensors->resident(layer), /*ready=*/done, /*free=*/{},
                                {.name = "to host memory", .layer = layer});
  }
}

void Activations::before_backward(std::int64_t layer) {
  if (!offload_) return;
  // The layer above is done: the next layer that uses its buffer is fetched into it.
  const std::int64_t next = layer + 1 - resident_layers;
  if (layer + 1 < layers_ && next >= 0) {
    const CopyStream::Event free = copies_.record();
    for (const PerLayer* tensors : all_saved()) {
      if (!tensors->offloaded()) continue;
      fetched_[next] = copies_.copy(tensors->resident(next), tensors->host_copy(next), /*ready=*/{}, free,
                                    {.name = "from host memory", .layer = next});
    }
  }
  if (offloads(layer)) copies_.wait(fetched_[layer]);
}

Activations::Activations(Allocator& allocator, const ModelSpec& spec, const ExecutionShape& shape, std::int64_t layers,
                         bool trains)
    : layers_(layers),
      C_(spec.hidden_size),
      F_(spec.intermediate_size),
      H_(spec.num_attention_heads),
      G_(spec.num_key_value_heads),
      D_(spec.head_dim),
      norm_statistics_(Norm::statistics_per_token(spec.norm)),
      saved_{.attention = trains && shape.recompute != Recompute::full,
             .everything = trains && shape.recompute == Recompute::none},
      trains_(trains),
      gated_(spec.gated_feedforward),
      query_key_norm_(spec.query_key_norm != QueryKeyNorm::none),
      offload_(trains && shape.offload),
      sent_(static_cast<std::size_t>(layers_)),
      fetched_(static_cast<std::size_t>(layers_)) {
  const DType dtype = shape.dtype, sums = accumulator(dtype);
  const std::int64_t most = max_batch_tokens(shape), training = trains ? shape.max_sequences * shape.max_tokens : 0;
  const auto make = [&](PerLayer& tensors, const char* name, DType type, std::int64_t width, bool keep) {
    tensors.make(allocator, name, type, {training, width}, {most, width}, layers_, keep, offload_);
  };
  const auto make_shared = [&](const char* name, DType type, std::int64_t tokens, std::int64_t width) {
    return allocator.make(Tag::activations, fmt::format("shared {}", name), type, {tokens, width});
  };
  make(input_, "input", dtype, C_, trains);
  make(query_, "query", dtype, H_ * D_, saved_.everything && !query_key_norm_);
  make(key_value_, "key and value", dtype, 2 * G_ * D_, saved_.everything);
  make(attention_, "attention out", dtype, H_ * D_, saved_.attention);
  make(logsumexp_, "attention logsumexp", sums, H_, saved_.attention);
  make(after_attention_, "after attention", dtype, C_, saved_.everything);
  if (saved_.everything) {
    if (gated_) make(gate_, "feedforward gate", dtype, F_, true);
    make(up_, "feedforward up", dtype, F_, true);
  }
  if (query_key_norm_) {
    make(query_projection_, "query before its norm", dtype, H_ * D_, saved_.everything);
    make(key_projection_, "key before its norm", dtype, G_ * D_, saved_.everything);
    query_statistics_ = make_shared("query norm statistics", sums, most, H_);
    key_statistics_ = make_shared("key norm statistics", sums, most, G_);
  }
  normed_ = make_shared("normed", dtype, most, C_);
  statistics_ = make_shared("norm statistics", sums, most, norm_statistics_);
  row_sum_and_delta_ = make_shared("attention row sum and delta", sums, most, H_);
  if (sums != dtype) attention_sum_ = make_shared("attention sum", sums, most, H_ * D_);
  if (trains) {
    residual_gradient_ = make_shared("residual gradient", dtype, training, C_);
    attention_gradient_ = make_shared("attention out gradient", dtype, training, H_ * D_);
    key_value_gradient_sum_ = make_shared("key and value gradient", sums, training, 2 * G_ * D_);
  }
}

BlockTensors Activations::block(std::int64_t layer, std::int64_t B, std::int64_t T, bool training) const {
  const std::int64_t n = B * T, slot = training ? layer : 0;
  const Shape width{n, C_}, heads{n, H_ * D_}, rows{B, H_, T}, pair{2, B, T, G_, D_};
  BlockTensors t;
  t.input = input_.view_of(slot, width);
  t.normed = normed_.view().prefix(width);
  t.statistics = statistics_.view().prefix({n, norm_statistics_});
  t.query = query_.view_of(slot, heads);
  t.key_value = key_value_.view_of(slot, pair);
  if (query_key_norm_) {
    t.query_projection = query_projection_.view_of(slot, heads);
    t.key_projection = key_projection_.view_of(slot, {n, G_ * D_});
    t.query_statistics = query_statistics_.view().prefix({n * H_});
    t.key_statistics = key_statistics_.view().prefix({n * G_});
  }
  t.attention = attention_.view_of(slot, heads);
  t.attention_sum = attention_sum_.empty() ? t.attention : attention_sum_.view().prefix(heads);
  t.logsumexp = logsumexp_.view_of(slot, rows);
  t.delta = t.row_sum = row_sum_and_delta_.view().prefix(rows);
  t.after_attention = after_attention_.view_of(slot, width);
  if (saved_.everything) {
    if (gated_) t.gate = gate_.view_of(slot, {n, F_});
    t.up = up_.view_of(slot, {n, F_});
  }
  if (!training) {
    t.output = t.input;
    return t;
  }
  ensure(trains_, "a model without gradients is only evaluated");
  // The stack's output waits for the head in the memory of `normed`, which no block needs before backward starts.
  t.output = layer + 1 < layers_ ? input_.view_of(layer + 1, width) : t.normed;
  t.residual_gradient = residual_gradient_.view().prefix(width);
  t.attention_gradient = attention_gradient_.view().prefix(heads);
  t.key_value_gradient_sum = key_value_gradient_sum_.view().prefix(pair);
  // The rounded gradient overwrites the keys and values: whoever has their gradient no longer needs them.
  t.key_value_gradient = t.key_value_gradient_sum.dtype == t.key_value.dtype ? t.key_value_gradient_sum : t.key_value;
  return t;
}

}  // namespace ringtrain
