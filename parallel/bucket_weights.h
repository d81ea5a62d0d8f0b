// The weights of one rank's store: all of them, or its slices and a few buffers in which the buckets in use are
// gathered. Each bucket has a slot: if weights are not sharded, its own part of the weights. Gathers run during the
// computation; all ranks call in the same order.
#pragma once

#include <array>
#include <vector>

#include "parallel/bucket_memory.h"

namespace ringtrain {

class BucketWeights {
 public:
  /// Allocates under Tag::weights. context must outlive this object.
  BucketWeights(Allocator& allocator, const StoreContext& context);

  /// Returns the memory. A bucket is in use while it is gathered or acquired.
  const BucketMemory& memory() const { return memory_; }
  // See ParameterStore; ids and buckets are those of the table.
  void prefetch(int bucket);
  void acquire(int bucket);
  void release(int bucket);
  TensorView weight(const Parameter& parameter) const;
  void changed();
  void gather_changed();

 private:
  static constexpr int none = -1;
  struct Slot {
    int bucket = none;  // the bucket whose weights are here, or in transit
    int users = 0;      // acquired and not released; counted if weights are sharded
    std::array<AllGather, both_parts.size()> gathers;
  };
  std::size_t slot_of(int bucket) const { return memory_.sharded() ? context_.slot_of(bucket) : bucket; }

  const StoreContext& context_;
  const BucketMemory memory_;
  std::vector<Slot> slots_;
};

}  // namespace ringtrain
