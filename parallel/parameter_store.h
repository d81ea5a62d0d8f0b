// Weights and gradients of one rank, and what the ranks do to keep them equal. A layer acquires a bucket's weights
// before use and releases them after; backward says which gradient it writes and when a bucket's are complete. How much
// of both a rank holds is the store's affair (Shard, Rajbhandari et al., "ZeRO", 2020): all of the weights and
// gradients, or its own slices, with a few places for the buckets in use. Gathers and reductions run beside the
// computation, on a communicator of their own, and all ranks call in the same order. Sums run in rank order.
#pragma once

#include <memory>
#include <vector>

#include "parallel/bucket_gradients.h"
#include "parallel/bucket_weights.h"

namespace ringtrain {

class ParameterStore {
 public:
  /// Splits its own communicator off world (collective), which may be null where nothing is ever gathered or reduced.
  /// table, stream and world must outlive it. Allocates under Tag::weights and Tag::gradients: the flat buffers, or
  /// this rank's slices and three places (four where the ends of the model are used together) for buckets in use; and
  /// for what is being reduced, two stagings under Tag::workspace, none if the communicator itself adds. Error(usage)
  /// if options.rank is not among options.ranks, or world has another number of ranks.
  ParameterStore(Allocator& allocator, const ParameterTable& table, Stream& stream, const StoreOptions& options,
                 Communicator* world = nullptr);
  ParameterStore(const ParameterStore&) = delete;
  ParameterStore& operator=(const ParameterStore&) = delete;

  /// Returns the table of its parameters.
  const ParameterTable& table() const { return context_.table; }
  /// Returns whether it has memory for gradients.
  bool has_gradients() const { return context_.options.gradients; }
  /// Returns the dtype of its weights.
  DType dtype() const { return context_.options.dtype; }

  // ---- Weights -----------------------------------------------------------------------------------------------------

  // A call out of order is an Error(usage) that names the call, the bucket, and the parameter if there is one; so is
  // one with a bucket or an id that the table does not have, or of what the store was made without.

  /// Begins to bring a bucket's weights here, beside whatever runs: nothing if they are here or on their way.
  void prefetch(int bucket) { weights_.prefetch(bucket); }
  /// Makes a bucket's weights usable until release(bucket); calls may nest. Afterwards they stay until another bucket
  /// needs their place or weights_changed() is called.
  void acquire(int bucket) { weights_.acquire(bucket); }
  /// Ends what one acquire(bucket) began.
  void release(int bucket) { weights_.release(bucket); }
  /// Returns a weight of a bucket that is acquired, in its parameter's shape. (Where weights are whole and the bucket
  /// is not due to be gathered, nobody asks who has acquired it.)
  TensorView weight(int id) const { return weights_.weight(parameter_of("weight", id)); }
  /// To be called by all ranks when the owners have changed their slices (an update, a load): each bucket is gathered
  /// when it is next prefetched or acquired.
  void weights_changed();
  /// Gathers at once what weights_changed() has left to be gathered, where weights are whole: for who reads them and is
  /// no layer. All ranks call it.
  void gather_changed() { weights_.gather_changed(); }

  // ---- Gradients ---------------------------------------------------------------------------------------------------

  /// Begins a step: no memory is written but for what pads parameters, once. What a buffer holds is of an earlier step
  /// until backward writes it. (Without a call, gradients are there, to be added to.)
  void begin_step();
  /// Begins backward of a micro-batch. last: of a step, after which the sums over all ranks are complete.
  void begin_backward(bool last);
  /// Returns whether backward is to compute this parameter's gradient.
  bool trains(int id) const { return parameter_of("trains", id).part == Part::trainable; }
  /// Says that backward writes id's gradient now. Returns whether it adds: false for the first write. Error(usage) if
  /// its bucket is finished already.
  bool begin_gradient(int id);
  /// Returns where the gradient of id is, in its parameter's shape, of the accumulator of the store's dtype.
  TensorView gradient(int id) const;
  /// Returns the gradient of id, to be added to: zero if there is no term of it yet. For what can only add.
  TensorView gradient_to_add_to(int id);
  /// Says that a bucket's gradients of a micro-batch are complete: once a micro-batch, from the last bucket to the
  /// first, else Error(usage). (One with nothing to train may be left out.) Begins their reduction where one is due.
  /// What no layer wrote of them is zero; all_written: that is a mistake, an Error(usage) that names the parameter.
  void finish(int bucket, bool all_written = false);
  /// Finishes what is under way: this rank's slices are the sums over all ranks and micro-batches. Error(usage) if a
  /// bucket of the last one is not finished.
  void finish_step();

  // ---- Slices ------------------------------------------------------------------------------------------------------

  /// Returns what this rank owns of what is trained: the gradients that it sums, the weights that it updates.
  const std::vector<ParameterSlice>& slices() const { return slices_; }
  /// Returns what this rank owns of what is frozen.
  const std::vector<ParameterSlice>& frozen_slices() const { return frozen_slices_; }
  /// Returns which weights this rank holds for good and must be given: all, or its slices. weights() finds them.
  std::vector<ParameterSlice> held() const;
  /// Returns a slice's weights, those that layers compute with: of one that this rank holds.
  TensorView weights(const ParameterSlice& slice) const { return weights_.memory().held(slice, slice); }
  /// Returns the summed gradients of this rank's slices from one to another, with the padding between them (zero).
  /// They follow each other in memory where follows().
  TensorView gradients(const ParameterSlice& first, const ParameterSlice& last) const {
    return gradients_.memory().held(first, last);
  }
  /// Returns those of one slice.
  TensorView gradients(const ParameterSlice& slice) const { return gradients(slice, slice); }
  /// Returns whether a slice begins where another one ends.
  bool follows(const ParameterSlice& slice, const ParameterSlice& before) const;
  /// Sets all weights that this rank holds to zero, padding too: touches all memory at once.
  void clear_weights() { weights_.memory().clear(); }

 private:
  static constexpr int none = -1;
  const Parameter& parameter_of(const char* call, int id) const;
  const Parameter& trained_parameter(const char* call, int id) const;
  /// Returns the next bucket below one that has something to train; none: there is none.
  int trained_below(int bucket) const;

  StoreContext context_;
  std::vector<ParameterSlice> slices_, frozen_slices_;
  BucketWeights weights_;
  BucketGradients gradients_;
  std::vector<bool> has_gradient_;  // of each parameter
  bool last_ = true;
  int finished_ = 0, buckets_to_finish_ = 0;    // of a step
  int to_finish_ = none;                        // the next bucket to finish in this micro-batch; none: all are
  std::unique_ptr<Communicator> communicator_;  // goes first: it takes back what an exception left under way
};

/// A bucket's weights, usable for the lifetime of this object.
class WeightsGuard {
 public:
  /// Acquires the bucket. store must outlive it.
  WeightsGuard(ParameterStore& store, int bucket) : store_(store), bucket_(bucket) { store_.acquire(bucket_); }
  ~WeightsGuard() { store_.release(bucket_); }
  WeightsGuard(const WeightsGuard&) = delete;
  WeightsGuard& operator=(const WeightsGuard&) = delete;

 private:
  ParameterStore& store_;
  int bucket_;
};

}  // namespace ringtrain
