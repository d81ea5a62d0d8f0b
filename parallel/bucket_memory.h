// The memory of the weights, or of the gradients, of one rank's store: for all buckets, or for this rank's slices and
// the buckets that are in use. No communication.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "framework/allocator.h"
#include "parallel/parameter_slices.h"
#include "parallel/store_context.h"

namespace ringtrain {

class BucketMemory {
 public:
  /// Allocates under the tag; buffer_name: of the buffers for buckets in use. context must outlive this object.
  BucketMemory(Allocator& allocator, const StoreContext& context, Tag tag, DType dtype, std::span<const Part> parts,
               bool sharded, const char* buffer_name);

  /// Returns whether this rank permanently holds only its slices.
  bool sharded() const { return sharded_; }
  /// Returns a part of a bucket that is in use.
  TensorView of_bucket(int bucket, Part part) const;
  /// Returns a parameter of a bucket that is in use, in the parameter's shape.
  TensorView of_parameter(const Parameter& parameter) const;
  /// Returns this rank's slice of a bucket's part, as the rank permanently holds it. Requires sharded().
  TensorView own(int bucket, Part part) const;
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

}  // namespace ringtrain
