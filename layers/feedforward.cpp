#include "layers/feedforward.h"

#include <algorithm>

#include "framework/profile/trace.h"

namespace ringtrain {

FeedforwardWorkspace::FeedforwardWorkspace(Allocator& allocator, const ModelSpec& spec, const ExecutionShape& shape,
                                           const Saved& saved, bool trains) {
  const std::int64_t C = spec.hidden_size, F = spec.intermediate_size;
  const bool whole = shape.feedforward_chunk == 0;
  const std::int64_t most = Activations::max_batch_tokens(shape);
  chunk_ = whole ? most : std::min(most, shape.feedforward_chunk);
  const auto make = [&](const char* name, DType dtype, std::int64_t width) {
    return allocator.make(whole ? Tag::activations : Tag::workspace, name, dtype, {chunk_, width});
  };
  const DType dtype = shape.dtype;
  normed_ = make("feedforward chunk normed", dtype, C);
  statistics_ = make("feedforward chunk norm statistics", accumulator(dtype), Norm::statistics_per_token(spec.norm));
  if (!saved.everything) {  // otherwise chunks are rows of what a layer keeps
    if (spec.gated_feedforward) gate_ = make("feedforward chunk gate", dtype, F);
    up_ = make("feedforward chunk up", dtype, F);
  }
  product_ = make("feedforward chunk product", dtype, F);
  if (trains) normed_gradient_ = make("feedforward chunk normed gradient", dtype, C);
}

FeedforwardWorkspace::Chunk FeedforwardWorkspace::chunk_of(const BlockTensors& t, std::int64_t begin,
                                                           std::int64_t end) const {
  const auto rows = [&](const Tensor& workspace, const TensorView& kept = {}) {
    if (!kept.empty()) return kept.rows(begin, end);
    return workspace.empty() ? TensorView{} : workspace.view().rows(0, end - begin);
  };
  return {{.input = t.after_attention.rows(begin, end),
           .normed = rows(normed_),
           .statistics = rows(statistics_),
           .first_row = begin},
          rows(normed_gradient_),
          rows(gate_, t.gate),
          rows(up_, t.up),
          rows(product_)};
}

Feedforward::Feedforward(const ModelSpec& spec, ParameterStore& parameters, const BlockIds& ids,
                         const FeedforwardWorkspace& workspace, const LoraWorkspace& lora)
    : BlockHalf(spec, parameters, ids.bucket - 1, {"feedforward_norm", "feedforward_output"}, ids.feedforward_norm,
                ids.down, ids.feedforward_output_norm, lora),
      gated_(spec.gated_feedforward),
      activation_(spec.activation),
      gate_(parameters, ids.gate, &lora),
      up_(parameters, ids.up, &lora),
      workspace_(&workspace) {}

void Feedforward::expand(Stream& stream, const Chunk& c) const {
  if (gated_) {
    gate_.forward(stream, c.gate, input_of(c));
    dump_tensor(stream, "gate", c.gate, c.first_row);
  }
  up_.forward(stream, c.up, input_of(c));
  dump_tensor(stream, "up", c.up, c.first_row);
}

void Feedforward::activate(Stream& stream, const Chunk& c) const {
  activation_forward(stream, activation_, c.product, c.activated(), c.factor());
  dump_tensor(stream, "activation", c.product, c.first_row);
}

void Feedforward::forward(Stream& stream, const BlockTensors& t) const {
  const Span span(stream.trace(), "feedforward");
  const std::int64_t tokens = t.after_attention.dim(0);
  for (std::int64_t begin = 0; begin < tokens; begin += workspace_->chunk()) {
    const std::int64_t end = std::min(tokens, begin + workspace_->chunk());
    const Chunk c = workspace_->chunk_of(t, begin, end);
    normalize(stream, c);
    expand(stream, c);
    activate(stream, c);
    add_to_residual(stream, c, t.output.rows(begin, end), c.product);
  }
}

void Feedforward::backward(Stream& stream, const BlockTensors& t, const Saved& saved) const {
  const Span span(stream.trace(), "feedforward backward");
  const std::int64_t tokens = t.after_attention.dim(0);
  for (std::int64_t begin = 0; begin < tokens; begin += workspace_->chunk()) {
    const std::int64_t end = std::min(tokens, begin + workspace_->chunk());
    const Chunk c = workspace_->chunk_of(t, begin, end);
    const TensorView gradient = t.residual_gradient.rows(begin, end);
    normalize(stream, c);
    if (!saved.everything) expand(stream, c);
    if (output_norm_.exists()) activate(stream, c);

    // c.product becomes its own gradient. The activation's backward pass replaces that by the product.
    const TensorView dy = output_backward_input(stream, c, c.product, gradient, c.product, c.normed_gradient);
    dump_gradient(stream, "activation", c.product, c.first_row);
    activation_backward(stream, activation_, c.activated(), c.factor(), c.product, c.activated(), c.factor(),
                        c.product);
    dump_tensor(stream, "activation", c.product, c.first_row);
    output_backward_weight(stream, c, dy, c.product);
    if (gated_) dump_gradient(stream, "gate", c.gate, c.first_row);
    dump_gradient(stream, "up", c.up, c.first_row);
    const TensorView into = input_gradient(gradient, c.normed_gradient);
    up_.backward_weight(stream, c.up, input_of(c));
    up_.backward_input(stream, into, c.up, /*accumulate=*/!norm_.exists());
    if (gated_) {
      gate_.backward_weight(stream, c.gate, input_of(c));
      gate_.backward_input(stream, into, c.gate, /*accumulate=*/true);
    }
    input_backward(stream, c, gradient, into);
  }
}

}  // namespace ringtrain
