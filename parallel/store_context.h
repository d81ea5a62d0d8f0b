// What the weights and the gradients of one rank's store (parameter_store.h) share: the table, the options, this rank's
// slices, and which slot a bucket has while it is in use. No communication.
#pragma once

#include "framework/config/choices.h"
#include "framework/parameter_table.h"
#include "framework/stream.h"
#include "parallel/collectives.h"

namespace ringtrain {

/// The options of a store.
struct StoreOptions {
  DType dtype = DType::float32;
  bool gradients = false;  // in the accumulator of dtype
  Shard shard = Shard::optimizer;
  int ranks = 1, rank = 0;
  SumOrder order = SumOrder::by_rank;
  // Whether sharded weights are held in the accumulator of dtype: a bucket in use has them rounded. Frozen ones never.
  bool master_weights = false;
  // Whether the sums of this rank's slices are held in bfloat16: each micro-batch's gradients are added and rounded.
  bool narrow_gradients = false;
};

struct StoreContext {
  /// Error(usage) if the options' rank is not among its ranks, or world (may be null) has another number of ranks.
  StoreContext(const ParameterTable& parameters, Stream& rank_stream, const StoreOptions& given,
               const Communicator* world);

  /// Error(usage) that names the call if the table has no such bucket.
  void check_bucket(const char* call, int bucket) const;
  /// Returns the communicator for gathers and reductions. Error(usage) that names the call if there is none.
  Communicator& ranks_for(const char* call) const;
  /// Returns whether a rank holds only its slices, and buffers for buckets in use. With one rank, this only serves
  /// another dtype.
  bool shards_weights() const {
    return options.shard == Shard::weights && (options.ranks > 1 || options.master_weights);
  }
  bool shards_gradients() const {
    return options.narrow_gradients || (options.shard != Shard::optimizer && options.ranks > 1);
  }
  /// Returns this rank's slice of a bucket's part, within the bucket.
  Slice owned(int bucket, Part part) const {
    return slice_of(table.bucket_size(bucket, part), options.ranks, options.rank);
  }
  /// Returns the slot of a bucket in use. Layers alternate, so that one is transferred, or its gradients are reduced,
  /// while its neighbor is computed. The ends of the model, its largest buckets, share a slot unless they are used
  /// together.
  std::size_t slot_of(int bucket) const;
  /// The number of different slots, of which a model may use fewer.
  static constexpr int slots = 4;

  const ParameterTable& table;
  Stream& stream;
  StoreOptions options;
  Communicator* communicator = nullptr;  // null: nothing is ever gathered or reduced
};

}  // namespace ringtrain
