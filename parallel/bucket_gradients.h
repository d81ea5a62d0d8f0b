// The gradients of one rank's store: all of them, or its slices and a few places for the buckets that backward writes.
// Each bucket's are summed over the ranks beside the computation, in two stagings that take turns; all ranks call in
// the same order.
#pragma once

#include <array>
#include <vector>

#include "framework/allocator.h"
#include "parallel/store_context.h"

namespace ringtrain {

class BucketGradients {
 public:
  /// Allocates under Tag::gradients and Tag::workspace: nothing unless the options have gradients. context must outlive
  /// it.
  BucketGradients(Allocator& allocator, const StoreContext& context);

  /// Returns whether this rank holds the sums of its slices alone: then each micro-batch is reduced by itself.
  bool sharded() const { return sharded_; }
  void begin_step();
  /// Returns where a bucket's gradients of this rank are, before their reduction.
  TensorView of_bucket(int bucket) const;
  /// Finishes the reduction of what was in the bucket's place before, which another rank may still read.
  void free_slot(int bucket);
  /// Begins to reduce a bucket of which a micro-batch's gradients are complete, where that is due. last: of the step.
  void complete(int bucket, bool last);
  /// Finishes what is under way.
  void finish();
  /// As ParameterStore::gradients.
  TensorView sums(const ParameterSlice& first, const ParameterSlice& last) const;

 private:
  static constexpr int none = -1;
  struct Reduction {
    Tensor staging;
    ReduceScatter scatter;
    int bucket = none;
  };
  std::size_t staging_of(int bucket) const;
  void make_stagings(Allocator& allocator);
  void zero_padding(int bucket);
  void finish(Reduction& reduction);

  const StoreContext& context_;
  const bool sharded_;
  Tensor held_;  // of the trainable part: flat, or this rank's slices
  std::vector<Tensor> slots_;
  std::array<Reduction, 2> reductions_;
  std::vector<bool> has_sum_;  // of each bucket: its slice holds sums of this step
  bool padding_is_zero_ = false;
};

}  // namespace ringtrain
