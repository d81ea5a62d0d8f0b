#include "layers/head.h"

#include <algorithm>
#include <memory>

#include "framework/dump/tensor_dump.h"
#include "framework/profile/trace.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"

namespace ringtrain {

Head::Head(Allocator& allocator, const ModelSpec& spec, const ExecutionShape& shape, std::int64_t tokens,
           ParameterStore& parameters, const ModelIds& ids)
    : parameters_(&parameters),
      bucket_(ids.head_bucket),
      tied_(ids.tied),
      norm_(parameters, ids.final_norm, spec.norm),
      head_(parameters, ids.head),
      chunk_(std::min(shape.loss_chunk, tokens)),
      factor_(spec.logit_factor),
      softcap_(spec.final_softcap) {
  ensure(shape.loss_chunk >= 1, "a loss chunk has at least one token");
  const std::int64_t C = spec.hidden_size, statistics = Norm::statistics_per_token(spec.norm);
  const auto make = [&](const char* name, DType dtype, const Shape& dims) {
    return allocator.make(Tag::workspace, name, dtype, dims);
  };
  logits_ = make("loss chunk logits", shape.dtype, {chunk_, spec.vocab_size});
  normed_ = make("loss chunk normed", shape.dtype, {chunk_, C});
  statistics_ = make("loss chunk norm statistics", accumulator(shape.dtype), {chunk_, statistics});
  nll_ = make("loss chunk nll", DType::float64, {chunk_});
  loss_sum_ = make("loss sum", DType::float64, {1});
  if (parameters.has_gradients()) normed_gradient_ = make("loss chunk normed gradient", shape.dtype, {chunk_, C});
}

Head::Chunk Head::chunk_from(std::int64_t begin, std::int64_t tokens) const {
  const std::int64_t end = std::min(tokens, begin + chunk_), n = end - begin;
  return {.begin = begin,
          .end = end,
          .normed = normed_.view().rows(0, n),
          .statistics = statistics_.view().rows(0, n),
          .logits = logits_.view().rows(0, n),
          .nll = nll_.view().rows(0, n)};
}

void Head::project(Stream& stream, const ConstTensorView& x, const Chunk& c) const {
  norm_.forward(stream, c.normed, c.statistics, x.rows(c.begin, c.end));
  dump(stream, {.name = "final_norm", .first_row = c.begin}, c.normed);
  if (factor_ != 1) scale(stream, c.normed, factor_);  // equivalent to scaling the logits, which are more numbers
  head_.forward(stream, c.logits, c.normed);
  if (softcap_ > 0) cap_logits(stream, c.logits, softcap_);
  dump(stream, {.name = "logits", .first_row = c.begin}, c.logits);
}

void Head::forward(Stream& stream, const DeviceBatch& batch, const ConstTensorView& x, const Chunk& c,
                   double denominator, bool gradient) {
  const ConstTensorView labels = batch.labels().rows(c.begin, c.end), weights = batch.weights().rows(c.begin, c.end);
  project(stream, x, c);
  cross_entropy(stream, c.logits, c.nll, labels, weights, denominator, gradient, softcap_);
  dump(stream, {.name = "nll", .first_row = c.begin}, c.nll);
  if (gradient) dump(stream, {.name = "logits", .gradient = true, .first_row = c.begin}, c.logits);
  weighted_sum(stream, loss_sum_, c.nll, weights, labels, /*accumulate=*/loss_sum_is_set_);
  loss_sum_is_set_ = true;
}

void Head::train(Stream& stream, const DeviceBatch& batch, const ConstTensorView& x, const TensorView& dx,
                 double denominator) {
  const Span span(stream.trace(), "head");
  const Weights weights(*this);
  const std::int64_t tokens = x.dim(0);
  for (std::int64_t begin = 0; begin < tokens; begin += chunk_) {
    const Chunk c = chunk_from(begin, tokens);
    forward(stream, batch, x, c, denominator, /*gradient=*/true);
    const TensorView normed_gradient = normed_gradient_.view().prefix(c.normed.shape);
    head_.backward_weight(stream, c.logits, c.normed);
    head_.backward_input(stream, normed_gradient, c.logits, /*accumulate=*/false);
    if (factor_ != 1) scale(stream, normed_gradient, factor_);
    dump(stream, {.name = "final_norm", .gradient = true, .first_row = c.begin}, normed_gradient);
    norm_.backward(stream, dx.rows(c.begin, c.end), normed_gradient, x.rows(c.begin, c.end), c.statistics,
                   /*accumulate=*/false);
  }
}

void Head::evaluate(Stream& stream, const DeviceBatch& batch, const ConstTensorView& x, const TensorView& nll) {
  const Span span(stream.trace(), "head");
  const Weights weights(*this);
  const std::int64_t tokens = x.dim(0);
  for (std::int64_t begin = 0; begin < tokens; begin += chunk_) {
    const Chunk c = chunk_from(begin, tokens);
    if (batch.has_target(c.begin, c.end)) {
      forward(stream, batch, x, c, /*denominator=*/1.0, /*gradient=*/false);
    } else if (!nll.empty()) {
      fill(stream, c.nll, 0.0);  // an evaluation scores the end of a long context: most chunks have nothing to score
    }
    if (!nll.empty()) copy_in_order(stream, nll.rows(c.begin, c.end), c.nll);
  }
}

LogitsPass Head::begin_logits(Stream& stream, const ConstTensorView& x) const {
  const auto rows = [this, &stream, x, weights = std::make_shared<Weights>(*this)](std::int64_t begin,
                                                                                   std::int64_t end) {
    ensure(0 <= begin && begin <= end && end <= x.dim(0) && end - begin <= chunk_, "rows of one chunk at most");
    const Span span(stream.trace(), "head");
    const Chunk c = chunk_from(begin, end);
    project(stream, x, c);
    return c.logits;
  };
  return {.most_rows = chunk_, .rows = rows};
}

double Head::take_loss_sum(Stream& stream) {
  double sum = 0.0;
  take_loss_sum(stream, host_view(&sum, {1}));
  stream.synchronize();
  return sum;
}

void Head::take_loss_sum(Stream& stream, const TensorView& sum) {
  if (loss_sum_is_set_) {
    copy_in_order(stream, sum, loss_sum_);
  } else {
    *sum.as<double>() = 0.0;
  }
  loss_sum_is_set_ = false;
}

}  // namespace ringtrain
