#include "parallel/ring/ring_buffers.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

namespace ringtrain {

namespace {

/// Hop h > 0 uses buffer (h - 1) % 2, so a ring of two needs one.
constexpr std::size_t buffer_of(int hop) {
  return static_cast<std::size_t>((hop - 1) % 2);
}

Shape block_shape(std::int64_t B, std::int64_t T, const RingCapacity& capacity) {
  return {2, B, T, capacity.G, capacity.D};
}

}  // namespace

RingBuffers::RingBuffers(Allocator& allocator, const RingCapacity& capacity, int ring_size) : capacity_(capacity) {
  if (ring_size == 1) return;
  const Shape block = block_shape(1, capacity.tokens, capacity);
  const Shape gradients = block_shape(1, capacity.gradient_tokens, capacity);
  const DType sums = accumulator(capacity.dtype);
  const auto make = [&](const std::string& name, DType dtype, const Shape& shape) {
    return allocator.make(Tag::ring, name, dtype, shape);
  };
  for (int i = 0; i < std::min(ring_size - 1, 2); ++i) {
    blocks_.push_back(make(fmt::format("ring keys and values {}", i), capacity.dtype, block));
    if (capacity.documents) {
      documents_.push_back(make(fmt::format("ring document ids {}", i), DType::int32, {capacity.tokens}));
    }
    if (capacity.backward) gradients_.push_back(make(fmt::format("ring gradients {}", i), sums, gradients));
  }
  // Only a ring of three or more has runs of hops that do not start next to the owner; the owner adds their gradients.
  if (capacity.backward && ring_size > 2) returned_ = make("ring gradients returned", sums, gradients);
}

TensorView RingBuffers::keys_and_values(int hop, std::int64_t B, std::int64_t T) const {
  return blocks_[buffer_of(hop)].view().prefix(block_shape(B, T, capacity_));
}

TensorView RingBuffers::documents(int hop, std::int64_t B, std::int64_t T) const {
  return documents_[buffer_of(hop)].view().prefix({B, T});
}

TensorView RingBuffers::gradients(int hop, std::int64_t begin, const Shape& shape) const {
  return gradients_[buffer_of(hop)].view().flat(begin, begin + shape.numel()).reshape(shape);
}

}  // namespace ringtrain
