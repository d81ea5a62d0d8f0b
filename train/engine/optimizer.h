// AdamW with state sharded over all dp x sp ranks. A rank updates slices (parameter, begin, end) of the flat buffers,
// the ones that GradientReduction::owned gives it, and holds moments for these alone; where the model computes in
// bfloat16, it also holds their float32 weights, which are the state, and the model's are those rounded. Knows global
// names, no mesh: the same slices are what a checkpoint stores. Used by the trainer between reduction and gather of the
// weights.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "framework/allocator.h"
#include "framework/config/config.h"
#include "framework/parameters.h"
#include "framework/stream.h"
#include "kernels/adamw.h"
#include "train/engine/offloaded_update.h"

namespace ringtrain {

/// Elements [begin, end) of a parameter, and where their moments stand in the owner's moment buffers.
struct ParameterSlice {
  int parameter = 0;
  std::int64_t begin = 0, end = 0;
  std::int64_t moment = 0;
  std::int64_t count() const { return end - begin; }
  friend bool operator==(const ParameterSlice&, const ParameterSlice&) = default;
};

/// Return what `rank` of `ranks` owns, in the order of the table; padding belongs to nobody. Pure: every rank can tell
/// every other's slices. All ranks' slices together are each element once.
std::vector<ParameterSlice> owned_slices(const ParameterTable& table, int ranks, int rank);

/// Return how many elements each of `ranks` owns, by rank: what owned_slices() adds up to, for all at once.
std::vector<std::int64_t> owned_elements(const ParameterTable& table, int ranks);

class Optimizer {
 public:
  /// Makes the two moments of this rank's slices, and with a bfloat16 model their weights, under Tag::optimizer;
  /// offload: in host memory. parameters and stream must outlive it.
  Optimizer(Allocator& allocator, const OptimizerConfig& config, Parameters& parameters, Stream& stream, int ranks,
            int rank, bool offload = false);

  /// Sets both moments to zero: the state before the first step.
  void reset();
  /// Sets weights() to those of a new model, not rounded. Nothing to do where they are the model's own.
  void initialise_weights(std::uint64_t seed);
  /// Return the sum of squares of the gradients of this rank's slices; the sum over ranks is the square of the global
  /// norm, with every parameter counted once.
  double sum_of_squares();
  /// The same into sum: float64 [1] of the host, to be read when the stream has got here.
  void sum_of_squares(const TensorView& sum);
  /// Updates this rank's slices of the weights from their gradients times `gradient_scale`. step counts from 1.
  void update(double lr, std::int64_t step, double gradient_scale);

  const std::vector<ParameterSlice>& slices() const { return slices_; }
  /// Return the elements of all slices: what each moment buffer holds.
  std::int64_t elements() const;
  /// Return a slice's moments, and its weights as they are updated.
  TensorView first_moment(const ParameterSlice& slice) const { return own(first_, slice); }
  TensorView second_moment(const ParameterSlice& slice) const { return own(second_, slice); }
  TensorView weights(const ParameterSlice& slice) const {
    return master_.empty() ? model_weights(slice) : own(master_, slice);
  }
  /// Return whether weights() are not the model's own.
  bool has_master_weights() const { return !master_.empty(); }

 private:
  static TensorView own(const Tensor& values, const ParameterSlice& slice) {
    return values.view().flat(slice.moment, slice.moment + slice.count());
  }
  TensorView model_weights(const ParameterSlice& slice) const {
    return parameters_->weight(slice.parameter).flat(slice.begin, slice.end);
  }
  OptimizerConfig config_;
  Parameters* parameters_;
  Stream* stream_;
  std::vector<ParameterSlice> slices_;
  std::vector<AdamWSlice> updates_;  // of slices_, in their order
  Tensor first_, second_;
  Tensor master_;                               // empty where the model computes with the very weights that are updated
  Tensor sum_;                                  // float64 [1]
  std::unique_ptr<OffloadedUpdate> offloaded_;  // null: all is on the device
};

/// Return the factor that brings a gradient of this norm to at most max_norm; 1 if max_norm is 0 (no clipping).
double clip_factor(double norm, double max_norm);

}  // namespace ringtrain
