#include "layers/embedding.h"

#include "framework/dump/tensor_dump.h"
#include "framework/profile/trace.h"
#include "kernels/embedding.h"

namespace ringtrain {

void Embedding::forward(Stream& stream, const DeviceBatch& batch, const TensorView& x) const {
  const Span span(stream.trace(), "embedding");
  const WeightsGuard weights(*parameters_, bucket);
  embedding_forward(stream, x, batch.token_ids(), parameters_->weight(tokens_), /*accumulate=*/false);
  if (positions_ >= 0) {
    embedding_forward(stream, x, batch.position_ids(), parameters_->weight(positions_), /*accumulate=*/true);
  }
  dump(stream, {.name = "embedding"}, x);
}

void Embedding::backward(Stream& stream, const DeviceBatch& batch, const ConstTensorView& dx) const {
  const Span span(stream.trace(), "embedding backward");
  dump(stream, {.name = "embedding", .gradient = true}, dx);
  const auto add = [&](int id, const ConstTensorView& rows) {
    if (parameters_->trains(id)) embedding_backward(stream, parameters_->gradient_to_add_to(id), rows, dx);
  };
  add(tokens_, batch.token_ids());
  if (positions_ >= 0) add(positions_, batch.position_ids());
}

}  // namespace ringtrain
