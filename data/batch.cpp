#include "data/batch.h"

namespace ringtrain {

Batch::Batch(Allocator& allocator, std::int64_t max_sequences, std::int64_t max_tokens, DType dtype) {
  const Shape shape{max_sequences, max_tokens};
  tokens_ = allocator.make(Tag::activations, "batch.tokens", DType::int32, shape);
  labels_ = allocator.make(Tag::activations, "batch.labels", DType::int32, shape);
  positions_ = allocator.make(Tag::activations, "batch.positions", DType::int32, shape);
  documents_ = allocator.make(Tag::activations, "batch.documents", DType::int32, shape);
  weights_ = allocator.make(Tag::activations, "batch.weights", accumulator(dtype), shape);
}

}  // namespace ringtrain
