// The ring's own memory: blocks of other ranks while this rank meets them, and the gradients that move with them. There
// are two buffers of each, which alternate from hop to hop: one is read, and one is filled. A ring of three or more
// also has one for gradients that have returned to their owner and must be added. No communication.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/allocator.h"

namespace ringtrain {

/// The largest micro-batch of any use, as B * T of the largest shard of any rank: training has several short sequences,
/// and evaluation may have one long one.
struct RingCapacity {
  std::int64_t tokens = 0;           // of any pass
  std::int64_t gradient_tokens = 0;  // of a backward pass
  std::int64_t G = 0, D = 0;
  DType dtype = DType::float32;  // of keys and values; their gradients have its accumulator
  bool backward = true;          // otherwise no gradient buffers
  bool documents = true;         // otherwise no buffers for document ids
  std::int64_t min_part = 0;     // tokens of a part of a block in backward; 0: enough to keep the device busy
};

class RingBuffers {
 public:
  /// Makes them under Tag::ring (their bytes: docs/architecture.md); a ring of one has none.
  RingBuffers(Allocator& allocator, const RingCapacity& capacity, int ring_size);

  const RingCapacity& capacity() const { return capacity_; }
  /// Returns the buffer of the block met at a hop > 0, for B sequences of T tokens: [2, B, T, G, D], keys first.
  TensorView keys_and_values(int hop, std::int64_t B, std::int64_t T) const;
  /// Returns its document ids, int32 [B, T].
  TensorView documents(int hop, std::int64_t B, std::int64_t T) const;
  /// Returns the elements of its gradients from `begin`, in a shape.
  TensorView gradients(int hop, std::int64_t begin, const Shape& shape) const;
  /// Returns the buffer for gradients that return to their owner.
  TensorView returned(const Shape& shape) const { return returned_.view().prefix(shape); }

 private:
  RingCapacity capacity_;
  std::vector<Tensor> blocks_, documents_, gradients_;  // up to two each
  Tensor returned_;
};

}  // namespace ringtrain
