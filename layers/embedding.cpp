#include "layers/embedding.h"

#include <cmath>

#include "framework/dump/tensor_dump.h"
#include "framework/profile/trace.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"

namespace ringtrain {

Embedding::Embedding(const ModelSpec& spec, ParameterStore& parameters, const ModelIds& ids)
    : parameters_(&parameters),
      tokens_(ids.token_embedding),
      positions_(ids.position_embedding),
      factor_(spec.scaled_embedding ? std::sqrt(static_cast<double>(spec.hidden_size)) : 1.0) {}

void Embedding::forward(Stream& stream, const DeviceBatch& batch, const TensorView& x) const {
  const Span span(stream.trace(), "embedding");
  const WeightsGuard weights(*parameters_, bucket);
  embedding_forward(stream, x, batch.token_ids(), parameters_->weight(tokens_), /*accumulate=*/false);
  if (factor_ != 1) scale(stream, x, factor_);
  if (positions_ >= 0) {
    embedding_forward(stream, x, batch.position_ids(), parameters_->weight(positions_), /*accumulate=*/true);
  }
  dump(stream, {.name = "embedding"}, x);
}

void Embedding::backward(Stream& stream, const DeviceBatch& batch, const TensorView& dx) const {
  const Span span(stream.trace(), "embedding backward");
  dump(stream, {.name = "embedding", .gradient = true}, dx);
  const auto add = [&](int id, const ConstTensorView& rows) {
    if (parameters_->trains(id)) embedding_backward(stream, parameters_->gradient_to_add_to(id), rows, dx);
  };
  if (positions_ >= 0) add(positions_, batch.position_ids());
  if (factor_ != 1) scale(stream, dx, factor_);
  add(tokens_, batch.token_ids());
}

}  // namespace ringtrain
