// The gradients of one rank's store: all of them, or its slices and a few buffers for the buckets that backward writes.
// Each bucket's gradients are summed over the ranks during the computation, in two alternating stagings; all ranks call
// in the same order.
#pragma once

#include <array>
#include <vector>

#include "parallel/bucket_memory.h"

namespace ringtrain {

class BucketGradients {
 public:
  /// Allocates under Tag::gradients and Tag::workspace; nothing unless the options have gradients. context must outlive
  /// this object.
  BucketGradients(Allocator& allocator, const StoreContext& context);

  /// Returns the memory. A bucket in use has this rank's gradients before their reduction. If a rank permanently holds
  /// only its slices, each micro-batch is reduced separately.
  const BucketMemory& memory() const { return memory_; }
  void begin_step();
  /// Finishes the reduction of the bucket that was in this bucket's buffer before, which another rank may still read.
  void free_slot(int bucket);
  /// Begins to reduce a bucket when a micro-batch's gradients are complete, if that is due. last: of the step.
  void complete(int bucket, bool last);
  /// Finishes pending reductions.
  void finish();

 private:
  struct Reduction {
    Tensor staging;
    ReduceScatter scatter;
    int bucket = 0;  // valid while the scatter is pending
  };
  std::size_t staging_of(int bucket) const;
  void zero_padding(int bucket);
  void finish(Reduction& reduction);

  const StoreContext& context_;
  const BucketMemory memory_;
  std::array<Reduction, 2> reductions_;
  std::vector<bool> has_sum_;  // for each bucket: its slice has sums of this step
  bool padding_is_zero_ = false;
};

}  // namespace ringtrain
