// The ring's own memory: blocks of others while this rank meets them, and the gradients that travel with them. Two
// buffers each take turns from hop to hop: one is read, one is filled. A ring of three or more also has one for
// gradients that came back to their owner and are to be added. No communication.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/allocator.h"

namespace ringtrain {

/// The largest micro-batch of any use, as B * T of the largest shard of any rank: training has several short sequences,
/// evaluation may have one long one.
struct RingCapacity {
  std::int64_t tokens = 0;           // of any pass
  std::int64_t gradient_tokens = 0;  // of a backward pass
  std::int64_t G = 0, D = 0;
  DType dtype = DType::float32;  // of keys and values; their gradients have its accumulator
  bool backward = true;          // else no gradient buffers
  bool documents = true;         // else no buffers for document ids
  std::int64_t min_part = 0;     // tokens of a part of a block in backward; 0: what keeps the device busy
};

class RingBuffers {
 public:
  /// Makes them under Tag::ring (their bytes: docs/architecture.md); a ring of one has none.
  RingBuffers(Allocator& allocator, const RingCapacity& capacity, int ring_size);

  const RingCapacity& capacity() const { return capacity_; }
  /// Returns what belongs to the block met at a hop > 0, of B sequences of T tokens: [2, B, T, G, D], keys first.
  TensorView keys_and_values(int hop, std::int64_t B, std::int64_t T) const;
  /// int32 [B, T].
  TensorView documents(int hop, std::int64_t B, std::int64_t T) const;
  /// The elements from `begin` on, in a shape.
  TensorView gradients(int hop, std::int64_t begin, const Shape& shape) const;
  /// Returns where gradients return to their owner.
  TensorView returned(const Shape& shape) const { return returned_.view().prefix(shape); }

 private:
  RingCapacity capacity_;
  std::vector<Tensor> blocks_, documents_, gradients_;  // up to two each
  Tensor returned_;
};

}  // namespace ringtrain
