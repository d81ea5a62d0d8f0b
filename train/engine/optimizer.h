// The optimizer: an update rule (train/engine/update_rule.h) with its state sharded over all dp x sp ranks. A rank
// updates slices (parameter, begin, end) of the flat buffers, the ones that GradientReduction::owned gives it, and
// holds state for these alone; where the model computes in bfloat16, it also holds their float32 weights, which are the
// state, and the model's are those rounded. Knows global names, no mesh: the same slices are what a checkpoint stores.
// Used by the trainer between reduction and gather of the weights.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "framework/allocator.h"
#include "framework/config/config.h"
#include "framework/parameters.h"
#include "framework/stream.h"
#include "train/engine/offloaded_update.h"
#include "train/engine/update_rule.h"

namespace ringtrain {

/// Elements [begin, end) of a parameter, and where their state stands in the owner's buffers.
struct ParameterSlice {
  int parameter = 0;
  std::int64_t begin = 0, end = 0;
  std::int64_t offset = 0;
  std::int64_t count() const { return end - begin; }
  friend bool operator==(const ParameterSlice&, const ParameterSlice&) = default;
};

/// Returns what `rank` of `ranks` owns, in the order of the table; padding belongs to nobody. Pure: every rank can tell
/// every other's slices. All ranks' slices together are each element once.
std::vector<ParameterSlice> owned_slices(const ParameterTable& table, int ranks, int rank);

/// Returns how many elements each of `ranks` owns, by rank: what owned_slices() adds up to, for all at once.
std::vector<std::int64_t> owned_elements(const ParameterTable& table, int ranks);

class Optimizer {
 public:
  /// Makes the state of this rank's slices, and with a bfloat16 model their weights, under Tag::optimizer; offload: in
  /// host memory. rule: null for the config's own. parameters and stream must outlive it.
  Optimizer(Allocator& allocator, const OptimizerConfig& config, Parameters& parameters, Stream& stream, int ranks,
            int rank, bool offload = false, std::unique_ptr<UpdateRule> rule = nullptr);

  /// Sets all state to zero: that before the first step.
  void reset();
  /// Sets weights() to those of a new model, not rounded. Nothing to do where they are the model's own.
  void initialise_weights(std::uint64_t seed);
  /// Returns the sum of squares of the gradients of this rank's slices; the sum over ranks is the square of the global
  /// norm, with every parameter counted once.
  double sum_of_squares();
  /// The same into sum: float64 [1] of the host, to be read when the stream has got here.
  void sum_of_squares(const TensorView& sum);
  /// Updates this rank's slices of the weights from their gradients times `gradient_scale`. step counts from 1.
  void update(double lr, std::int64_t step, double gradient_scale);

  const std::vector<ParameterSlice>& slices() const { return slices_; }
  /// Returns the elements of all slices: what each buffer of state holds.
  std::int64_t elements() const;
  /// Returns the names of the state, in its order.
  const std::vector<std::string>& state_names() const { return state_names_; }
  /// Returns a slice's state of this index, and its weights as they are updated.
  TensorView state(std::size_t index, const ParameterSlice& slice) const { return own(state_[index], slice); }
  TensorView weights(const ParameterSlice& slice) const {
    return master_.empty() ? model_weights(slice) : own(master_, slice);
  }
  /// Returns whether weights() are not the model's own.
  bool has_master_weights() const { return !master_.empty(); }

 private:
  static TensorView own(const Tensor& values, const ParameterSlice& slice) {
    return values.view().flat(slice.offset, slice.offset + slice.count());
  }
  TensorView model_weights(const ParameterSlice& slice) const {
    return parameters_->weight(slice.parameter).flat(slice.begin, slice.end);
  }
  std::unique_ptr<UpdateRule> rule_;
  std::vector<std::string> state_names_;
  Parameters* parameters_;
  Stream* stream_;
  std::vector<ParameterSlice> slices_;
  std::vector<SliceUpdate> updates_;            // of slices_, in their order
  std::vector<Tensor> state_;                   // by name
  Tensor master_;                               // empty where the model computes with the very weights that are updated
  Tensor sum_;                                  // float64 [1]
  std::unique_ptr<OffloadedUpdate> offloaded_;  // null: all is on the device
};

/// Returns the factor that brings a gradient of this norm to at most max_norm; 1 if max_norm is 0 (no clipping).
double clip_factor(double norm, double max_norm);

}  // namespace ringtrain
