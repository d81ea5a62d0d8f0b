// The weights of one rank's store: all of them, or its slices and a few places in which the buckets in use are
// gathered. Each bucket has a place: where weights are whole, a place of its own in them. Gathers run beside the
// computation; all ranks call in the same order.
#pragma once

#include <array>
#include <vector>

#include "framework/allocator.h"
#include "parallel/store_context.h"

namespace ringtrain {

class BucketWeights {
 public:
  /// Allocates under Tag::weights. context must outlive it.
  BucketWeights(Allocator& allocator, const StoreContext& context);

  /// Returns whether this rank holds its slices alone.
  bool sharded() const { return sharded_; }
  // As in ParameterStore; ids and buckets are those of the table.
  void prefetch(int bucket);
  void acquire(int bucket);
  void release(int bucket);
  TensorView weight(const Parameter& parameter) const;
  void changed();
  void gather_changed();
  TensorView held(const ParameterSlice& slice) const;
  void clear();

 private:
  static constexpr int none = -1;
  struct Slot {
    Tensor memory;      // the bucket's trainable part, then its frozen one; none where weights are whole
    int bucket = none;  // whose weights are here, or on their way
    int users = 0;      // acquired and not released; counted where weights are sharded
    std::array<AllGather, both_parts.size()> gathers;
  };
  std::size_t slot_of(int bucket) const { return sharded_ ? context_.slot_of(bucket) : bucket; }
  /// Returns where a part of a bucket is while it is in use.
  TensorView of_bucket(int bucket, Part part) const;

  const StoreContext& context_;
  const bool sharded_;
  std::array<Tensor, both_parts.size()> held_;  // by part: flat, or this rank's slices
  std::vector<Slot> slots_;
};

}  // namespace ringtrain
