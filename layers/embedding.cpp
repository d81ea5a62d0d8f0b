#include "layers/embedding.h"

#include "framework/dump/tensor_dump.h"
#include "framework/profile/trace.h"
#include "kernels/embedding.h"
#include "layers/gradients.h"

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
  const auto gradient = [&](int id) { return gradient_to_add_to(stream, *parameters_, id); };
  embedding_backward(stream, gradient(tokens_), batch.token_ids(), dx);
  if (positions_ >= 0) embedding_backward(stream, gradient(positions_), batch.position_ids(), dx);
}

}  // namespace ringtrain
