// Weights and gradients of one rank, and the communication that keeps them equal on all ranks. A layer acquires a
// bucket's weights before use and releases them afterwards; backward reports which gradient it writes and when a
// bucket's gradients are complete. The store decides how much of both a rank holds (Shard, Rajbhandari et al., "ZeRO",
// 2020): all of the weights and gradients, or its own slices, with a few buffers for the buckets in use. Gathers and
// reductions run during the computation, on a separate communicator, and all ranks call in the same order. Sums use
// rank order.
#pragma once

#include <memory>
#include <vector>

#include "parallel/store_buckets.h"

namespace ringtrain {

class ParameterStore {
 public:
  /// Splits its own communicator off world (collective), which may be null if nothing is ever gathered or reduced.
  /// table, stream, and world must outlive it. Allocates under Tag::weights and Tag::gradients: the flat buffers, or
  /// this rank's slices and three buffers (four if the ends of the model are used together) for buckets in use; and for
  /// reductions, two stagings under Tag::workspace, none if the communicator itself adds. Error(usage) if options.rank
  /// is not among options.ranks, or world has another number of ranks.
  ParameterStore(Allocator& allocator, const ParameterTable& table, Stream& stream, const StoreOptions& options,
                 Communicator* world = nullptr);
  ParameterStore(const ParameterStore&) = delete;
  ParameterStore& operator=(const ParameterStore&) = delete;

  /// Returns the table of its parameters.
  const ParameterTable& table() const { return context_.table; }
  /// Returns whether it has memory for gradients.
  bool has_gradients() const { return context_.options.gradients; }
  /// Returns the dtype of weight().
  DType dtype() const { return context_.options.dtype; }
  /// Returns whether weights() of trained slices are in the accumulator of that dtype.
  bool has_master_weights() const { return context_.options.master_weights && context_.shards_weights(); }

  // ---- Weights -----------------------------------------------------------------------------------------------------

  // A call in the wrong order is an Error(usage) that names the call, the bucket, and the parameter if there is one. So
  // is a call with a bucket or an id that the table does not have, or for something that the store was made without.

  /// Begins to fetch a bucket's weights, concurrently with other work; does nothing if they are here or in transit.
  void prefetch(int bucket) { weights_.prefetch(bucket); }
  /// Makes a bucket's weights usable until release(bucket); calls may be nested. Afterwards they remain until another
  /// bucket needs their buffer or weights_changed() is called.
  void acquire(int bucket) { weights_.acquire(bucket); }
  /// Ends one acquire(bucket).
  void release(int bucket) { weights_.release(bucket); }
  /// Returns a weight of an acquired bucket, in its parameter's shape. (If weights are not sharded and the bucket need
  /// not be gathered, it is not checked whether it was acquired.)
  TensorView weight(int id) const { return weights_.weight(parameter_of("weight", id)); }
  /// To be called by all ranks when the owners have changed their slices (an update, a load): each bucket is gathered
  /// when it is next prefetched or acquired.
  void weights_changed();
  /// Gathers immediately what weights_changed() has marked, if weights are not sharded: for readers other than layers.
  /// All ranks call it.
  void gather_changed() { weights_.gather_changed(); }

  // ---- Gradients ---------------------------------------------------------------------------------------------------

  /// Begins a step. Writes no memory, except that the first call zeroes unsharded gradients. A buffer contains data of
  /// an earlier step until backward writes it. (Without this call, gradients are added to the existing ones.)
  void begin_step();
  /// Begins backward of a micro-batch. last: of a step, after which the sums over all ranks are complete.
  void begin_backward(bool last);
  /// Returns whether backward must compute this parameter's gradient.
  bool trains(int id) const { return parameter_of("trains", id).part == Part::trainable; }
  /// Reports that backward writes id's gradient now. Returns whether it must add: false for the first write.
  /// Error(usage) if its bucket is already finished.
  bool begin_gradient(int id);
  /// Returns the gradient of id, in its parameter's shape, in the accumulator of the store's dtype.
  TensorView gradient(int id) const;
  /// Returns the gradient of id for adding: zero if it has no terms yet. For code that can only add.
  TensorView gradient_to_add_to(int id);
  /// Reports that a bucket's gradients of a micro-batch are complete: once per micro-batch, from the last bucket to the
  /// first, otherwise Error(usage). (A bucket with nothing to train may be left out.) Begins their reduction if it is
  /// due. Gradients that no layer wrote are zero; with all_written, they are a mistake, an Error(usage) that names the
  /// parameter.
  void finish(int bucket, bool all_written = false);
  /// Finishes pending reductions: this rank's slices are the sums over all ranks and micro-batches. Error(usage) if a
  /// bucket of the last micro-batch is not finished.
  void finish_step();

  // ---- Slices ------------------------------------------------------------------------------------------------------

  /// Returns the trained slices that this rank owns: it sums their gradients and updates their weights.
  const std::vector<ParameterSlice>& slices() const { return slices_; }
  /// Returns the frozen slices that this rank owns.
  const std::vector<ParameterSlice>& frozen_slices() const { return frozen_slices_; }
  /// Returns which weights this rank holds permanently, so that they must be set: all, or its slices. weights() returns
  /// them.
  std::vector<ParameterSlice> held() const;
  /// Returns the weights of a slice that this rank holds: as layers use them, or not yet rounded to dtype().
  TensorView weights(const ParameterSlice& slice) const { return weights_.memory().held(slice, slice); }
  /// Returns the summed gradients, of the accumulator or bfloat16, of this rank's slices from one to another, with the
  /// padding between them (zero). They are contiguous if follows().
  TensorView gradients(const ParameterSlice& first, const ParameterSlice& last) const {
    return gradients_.memory().held(first, last);
  }
  /// Returns those of one slice.
  TensorView gradients(const ParameterSlice& slice) const { return gradients(slice, slice); }
  /// Returns whether a slice begins where another one ends.
  bool follows(const ParameterSlice& slice, const ParameterSlice& before) const;
  /// Sets all weights that this rank holds to zero, including padding: touches all memory at once.
  void clear_weights() { weights_.memory().clear(); }

 private:
  static constexpr int none = -1;
  const Parameter& parameter_of(const char* call, int id) const;
  const Parameter& trained_parameter(const char* call, int id) const;
  /// Returns the next lower bucket with something to train, or none.
  int trained_below(int bucket) const;

  StoreContext context_;
  std::vector<ParameterSlice> slices_, frozen_slices_;
  BucketWeights weights_;
  BucketGradients gradients_;
  std::vector<bool> has_gradient_;  // for each parameter
  bool last_ = true;
  int finished_ = 0, buckets_to_finish_ = 0;    // of a step
  int to_finish_ = none;                        // the next bucket to finish in this micro-batch; none: all are finished
  std::unique_ptr<Communicator> communicator_;  // destroyed first: withdraws exchanges that an exception left pending
};

/// A bucket's weights, usable for the lifetime of this object.
class WeightsGuard {
 public:
  /// Acquires the bucket. store must outlive it.
  WeightsGuard(ParameterStore& store, int bucket) : store_(store), bucket_(bucket) { store_.acquire(bucket_); }
  /// Throws Error(usage) if the program itself has released the bucket; ends it if another error is on its way.
  ~WeightsGuard() noexcept(false) { store_.release(bucket_); }  // NOLINT(bugprone-exception-escape)
  WeightsGuard(const WeightsGuard&) = delete;
  WeightsGuard& operator=(const WeightsGuard&) = delete;

 private:
  ParameterStore& store_;
  int bucket_;
};

}  // namespace ringtrain
