#include "layers/feedforward.h"

#include <algorithm>

#include "framework/dump/tensor_dump.h"
#include "framework/profile/trace.h"
#include "kernels/activation.h"
#include "kernels/elementwise.h"

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
  if (!saved.everything) {  // else chunks are rows of what a layer keeps
    if (spec.gated_feedforward) gate_ = make("feedforward chunk gate", dtype, F);
    up_ = make("feedforward chunk up", dtype, F);
  }
  product_ = make("feedforward chunk product", dtype, F);
  if (trains) normed_gradient_ = make("feedforward chunk normed gradient", dtype, C);
}

FeedforwardWorkspace::Chunk FeedforwardWorkspace::chunk_of(const BlockTensors& t, std::int64_t begin,
                                                           std::int64_t end) const {
  const auto rows = [&](const Tensor& own, const TensorView& kept = {}) {
    if (!kept.empty()) return kept.rows(begin, end);
    return own.empty() ? TensorView{} : own.view().rows(0, end - begin);
  };
  return {.input = t.after_attention.rows(begin, end),
          .normed = rows(normed_),
          .normed_gradient = rows(normed_gradient_),
          .statistics = rows(statistics_),
          .gate = rows(gate_, t.gate),
          .up = rows(up_, t.up),
          .product = rows(product_),
          .begin = begin};
}

Feedforward::Feedforward(const ModelSpec& spec, ParameterStore& parameters, const BlockIds& ids,
                         const FeedforwardWorkspace& workspace, const LoraWorkspace& lora)
    : layer_(ids.bucket - 1),
      gated_(spec.gated_feedforward),
      activation_(spec.activation),
      norm_(parameters, ids.feedforward_norm, spec.norm),
      output_norm_(parameters, ids.feedforward_output_norm, spec.norm),
      gate_(parameters, ids.gate, &lora),
      up_(parameters, ids.up, &lora),
      down_(parameters, ids.down, &lora),
      factor_(spec.residual_factor),
      workspace_(&workspace) {}

void Feedforward::dump_rows(Stream& stream, const char* name, const Chunk& c, const ConstTensorView& x,
                            bool gradient) const {
  dump(stream, {.name = name, .layer = layer_, .gradient = gradient, .first_row = c.begin}, x);
}

void Feedforward::normalise(Stream& stream, const Chunk& c) const {
  if (!norm_.exists()) return;
  norm_.forward(stream, c.normed, c.statistics, c.input);
  dump_rows(stream, "feedforward_norm", c, c.normed);
}

const TensorView& Feedforward::input_of(const Chunk& c) const {
  return norm_.exists() ? c.normed : c.input;
}

void Feedforward::expand(Stream& stream, const Chunk& c) const {
  if (gated_) {
    gate_.forward(stream, c.gate, input_of(c));
    dump_rows(stream, "gate", c, c.gate);
  }
  up_.forward(stream, c.up, input_of(c));
  dump_rows(stream, "up", c, c.up);
}

void Feedforward::activate(Stream& stream, const Chunk& c) const {
  if (gated_ && activation_ == Activation::gelu) {
    geglu_forward(stream, c.product, c.gate, c.up);
  } else if (gated_) {
    swiglu_forward(stream, c.product, c.gate, c.up);
  } else {
    gelu_forward(stream, c.product, c.up);
  }
  dump_rows(stream, "activation", c, c.product);
}

void Feedforward::forward(Stream& stream, const BlockTensors& t) const {
  const Span span(stream.trace(), "feedforward");
  const std::int64_t tokens = t.after_attention.dim(0);
  for (std::int64_t begin = 0; begin < tokens; begin += workspace_->chunk()) {
    const std::int64_t end = std::min(tokens, begin + workspace_->chunk());
    const Chunk c = workspace_->chunk_of(t, begin, end);
    const TensorView output = t.output.rows(begin, end);
    normalise(stream, c);
    expand(stream, c);
    activate(stream, c);
    if (output_norm_.exists()) {
      down_.forward(stream, c.normed, c.product);  // nobody reads the norm's output any more
      dump_rows(stream, "feedforward_output", c, c.normed);
      output_norm_.forward(stream, output, c.statistics, c.normed);
      add(stream, output, c.input);
    } else if (factor_ != 1) {
      down_.forward(stream, output, c.product);
      scale(stream, output, factor_);
      add(stream, output, c.input);
    } else {
      down_.forward(stream, output, c.product, /*residual=*/c.input);
    }
  }
}

TensorView Feedforward::output_gradient(Stream& stream, const Chunk& c, const TensorView& gradient) const {
  if (!output_norm_.exists()) {
    if (factor_ == 1) return gradient;
    copy(stream, c.normed_gradient, gradient);
    scale(stream, c.normed_gradient, factor_);
    return c.normed_gradient;
  }
  const TensorView &product = c.normed_gradient, &into = c.normed;
  down_.forward(stream, product, c.product);
  output_norm_.forward(stream, into, c.statistics, product);  // for its statistics
  output_norm_.backward(stream, into, gradient, product, c.statistics, /*accumulate=*/false);
  dump_rows(stream, "feedforward_output", c, into, /*gradient=*/true);
  return into;
}

void Feedforward::backward(Stream& stream, const BlockTensors& t, const Saved& saved) const {
  const Span span(stream.trace(), "feedforward backward");
  const std::int64_t tokens = t.after_attention.dim(0);
  for (std::int64_t begin = 0; begin < tokens; begin += workspace_->chunk()) {
    const std::int64_t end = std::min(tokens, begin + workspace_->chunk());
    const Chunk c = workspace_->chunk_of(t, begin, end);
    const TensorView gradient = t.residual_gradient.rows(begin, end);
    normalise(stream, c);
    if (!saved.everything) expand(stream, c);
    activate(stream, c);

    const TensorView down_gradient = output_gradient(stream, c, gradient);
    down_.backward_weight(stream, down_gradient, c.product);
    down_.backward_input(stream, c.product, down_gradient, /*accumulate=*/false);  // c.product: now its own gradient
    dump_rows(stream, "activation", c, c.product, /*gradient=*/true);
    if (output_norm_.exists()) normalise(stream, c);  // its place had another use
    if (gated_ && activation_ == Activation::gelu) {
      geglu_backward(stream, c.gate, c.up, c.product, c.gate, c.up);
    } else if (gated_) {
      swiglu_backward(stream, c.gate, c.up, c.product, c.gate, c.up);
    } else {
      gelu_backward(stream, c.up, c.product, c.up);
    }
    if (gated_) dump_rows(stream, "gate", c, c.gate, /*gradient=*/true);
    dump_rows(stream, "up", c, c.up, /*gradient=*/true);
    // Without a norm the input is the residual stream itself, whose gradient this adds to.
    const bool normed = norm_.exists();
    const TensorView input_gradient = normed ? c.normed_gradient : gradient;
    up_.backward_weight(stream, c.up, input_of(c));
    up_.backward_input(stream, input_gradient, c.up, /*accumulate=*/!normed);
    if (gated_) {
      gate_.backward_weight(stream, c.gate, input_of(c));
      gate_.backward_input(stream, input_gradient, c.gate, /*accumulate=*/true);
    }
    if (!normed) continue;
    dump_rows(stream, "feedforward_norm", c, input_gradient, /*gradient=*/true);
    norm_.backward(stream, gradient, input_gradient, c.input, c.statistics, /*accumulate=*/true);
  }
}

}  // namespace ringtrain
