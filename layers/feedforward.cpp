#include "layers/feedforward.h"

#include <algorithm>

#include "framework/dump/tensor_dump.h"
#include "framework/profile/trace.h"
#include "kernels/activation.h"

namespace ringtrain {

FeedforwardWorkspace::FeedforwardWorkspace(Allocator& allocator, const ModelSpec& spec, const ExecutionShape& shape,
                                           const Saved& saved, bool trains)
    : C_(spec.hidden_size), F_(spec.intermediate_size), norm_statistics_(Norm::statistics_per_token(spec.norm)) {
  const bool whole = shape.feedforward_chunk == 0;
  const std::int64_t most = Activations::max_batch_tokens(shape);
  chunk_ = whole ? most : std::min(most, shape.feedforward_chunk);
  const auto make = [&](const char* name, std::int64_t width) {
    return allocator.make(whole ? Tag::activations : Tag::workspace, name, shape.dtype, {chunk_, width});
  };
  normed_ = make("feedforward chunk normed", C_);
  statistics_ = allocator.make(whole ? Tag::activations : Tag::workspace, "feedforward chunk norm statistics",
                               accumulator(shape.dtype), {chunk_, norm_statistics_});
  if (!saved.everything) {  // else chunks are rows of what a layer keeps
    if (spec.gated_feedforward) gate_ = make("feedforward chunk gate", F_);
    up_ = make("feedforward chunk up", F_);
  }
  product_ = make("feedforward chunk product", F_);
  if (trains) normed_gradient_ = make("feedforward chunk normed gradient", C_);
}

Feedforward::Feedforward(const ModelSpec& spec, ParameterStore& parameters, const BlockIds& ids,
                         const FeedforwardWorkspace& workspace, const LoraWorkspace& lora)
    : layer_(ids.bucket - 1),
      gated_(spec.gated_feedforward),
      norm_(parameters, ids.feedforward_norm, spec.norm, spec.norm_eps),
      gate_(parameters, ids.gate, &lora),
      up_(parameters, ids.up, &lora),
      down_(parameters, ids.down, &lora),
      workspace_(&workspace) {}

Feedforward::Chunk Feedforward::chunk_of(const BlockTensors& t, std::int64_t begin, std::int64_t end) const {
  const std::int64_t n = end - begin;
  Chunk c;
  c.input = t.after_attention.rows(begin, end);
  c.normed = workspace_->normed(n);
  c.statistics = workspace_->statistics(n);
  if (gated_) c.gate = t.gate.empty() ? workspace_->gate(n) : t.gate.rows(begin, end);
  c.up = t.up.empty() ? workspace_->up(n) : t.up.rows(begin, end);
  c.product = workspace_->product(n);
  c.begin = begin;
  return c;
}

void Feedforward::dump_rows(Stream& stream, const char* name, const Chunk& c, const ConstTensorView& x,
                            bool gradient) const {
  dump(stream, {.name = name, .layer = layer_, .gradient = gradient, .first_row = c.begin}, x);
}

void Feedforward::normalise(Stream& stream, const Chunk& c) const {
  norm_.forward(stream, c.normed, c.statistics, c.input);
  dump_rows(stream, "feedforward_norm", c, c.normed);
}

void Feedforward::expand(Stream& stream, const Chunk& c) const {
  if (gated_) {
    gate_.forward(stream, c.gate, c.normed);
    dump_rows(stream, "gate", c, c.gate);
  }
  up_.forward(stream, c.up, c.normed);
  dump_rows(stream, "up", c, c.up);
}

void Feedforward::activate(Stream& stream, const Chunk& c) const {
  if (gated_) {
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
    const Chunk c = chunk_of(t, begin, end);
    const TensorView output = t.output.rows(begin, end);
    normalise(stream, c);
    expand(stream, c);
    activate(stream, c);
    down_.forward(stream, output, c.product, /*residual=*/c.input);
  }
}

void Feedforward::backward(Stream& stream, const BlockTensors& t, const Saved& saved) const {
  const Span span(stream.trace(), "feedforward backward");
  const std::int64_t tokens = t.after_attention.dim(0);
  for (std::int64_t begin = 0; begin < tokens; begin += workspace_->chunk()) {
    const std::int64_t end = std::min(tokens, begin + workspace_->chunk());
    const Chunk c = chunk_of(t, begin, end);
    const TensorView gradient = t.residual_gradient.rows(begin, end);
    normalise(stream, c);
    if (!saved.everything) expand(stream, c);
    activate(stream, c);

    down_.backward_weight(stream, gradient, c.product);
    down_.backward_input(stream, c.product, gradient, /*accumulate=*/false);  // c.product: now its own gradient
    dump_rows(stream, "activation", c, c.product, /*gradient=*/true);
    if (gated_) {
      swiglu_backward(stream, c.gate, c.up, c.product, c.gate, c.up);
    } else {
      gelu_backward(stream, c.up, c.product, c.up);
    }
    if (gated_) dump_rows(stream, "gate", c, c.gate, /*gradient=*/true);
    dump_rows(stream, "up", c, c.up, /*gradient=*/true);
    const TensorView normed_gradient = workspace_->normed_gradient(end - begin);
    up_.backward_weight(stream, c.up, c.normed);
    up_.backward_input(stream, normed_gradient, c.up, /*accumulate=*/false);
    if (gated_) {
      gate_.backward_weight(stream, c.gate, c.normed);
      gate_.backward_input(stream, normed_gradient, c.gate, /*accumulate=*/true);
    }
    dump_rows(stream, "feedforward_norm", c, normed_gradient, /*gradient=*/true);
    norm_.backward(stream, gradient, normed_gradient, c.input, c.statistics, /*accumulate=*/true);
  }
}

}  // namespace ringtrain
