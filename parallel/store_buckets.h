// What one rank's store (parameter_store.h) is made of: the memory of its buckets, the weights, and the gradients.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "framework/allocator.h"
#include "parallel/parameter_slices.h"
#include "parallel/store_context.h"

namespace ringtrain {

/// The memory of the weights, or of the gradients, of one rank's store: for all buckets, or for this rank's slices and
/// the buckets that are in use. No communication.
class BucketMemory {
 public:
  /// Allocates under the tag; held: the dtype of trainable slices, if sharded; buffer_name: of the buffers for buckets
  /// in use. context must outlive this object.
  BucketMemory(Allocator& allocator, const StoreContext& context, Tag tag, DType dtype, DType held,
               std::span<const Part> parts, bool sharded, const char* buffer_name);

  /// Returns whether this rank permanently holds only its slices.
  bool sharded() const { return sharded_; }
  /// Returns a part of a bucket that is in use.
  TensorView of_bucket(int bucket, Part part) const;
  /// Returns a parameter of a bucket that is in use, in the parameter's shape.
  TensorView of_parameter(const Parameter& parameter) const;
  /// Returns this rank's slice of a bucket's part, as the rank permanently holds it. Requires sharded().
  TensorView own_slice(int bucket, Part part) const;
  /// Returns what this rank permanently holds from one slice to another of the same part, including the padding
  /// between.
  TensorView held(const ParameterSlice& first, const ParameterSlice& last) const;
  /// Sets everything that this rank permanently holds to zero, including padding.
  void clear() const;

 private:
  const StoreContext& context_;
  const bool sharded_;
  std::array<std::vector<std::int64_t>, both_parts.size()> offsets_;  // by part: shard_offsets
  std::array<Tensor, both_parts.size()> held_;                        // by part: flat, or this rank's slices
  std::array<Tensor, StoreContext::slots> slots_;  // each for a bucket's trainable part and then its frozen one
};

/// The weights of one rank's store: all of them, or its slices and a few buffers in which the buckets in use are
/// gathered. Each bucket has a slot: if weights are not sharded, its own part of the weights. Gathers run during the
/// computation; all ranks call in the same order.
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

/// The gradients of one rank's store: all of them, or its slices and a few buffers for the buckets that backward
/// writes. Each bucket's gradients are summed over the ranks during the computation, in two alternating stagings; all
/// ranks call in the same order.
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
  void add_to_sum(int bucket);

  const StoreContext& context_;
  const BucketMemory memory_;
  std::array<Reduction, 2> reductions_;
  std::vector<bool> has_sum_;  // for each bucket: its slice has sums of this step
  bool padding_is_zero_ = false;
};

}  // namespace ringtrain
