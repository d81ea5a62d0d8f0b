// The optimizer: AdamW (kernels/adamw.h) with its state sharded over all dp x sp ranks. A rank updates its own slices
// of the parameters (parallel/parameter_slices.h), and holds state for these alone; where the model computes in
// bfloat16, it also holds their float32 weights, which are the state, and the model's are those rounded. Knows global
// names, no mesh: the same slices are what a checkpoint stores. Used by the trainer between reduction and gather of the
// weights.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "framework/allocator.h"
#include "framework/stream.h"
#include "kernels/adamw.h"
#include "parallel/parameter_store.h"

namespace ringtrain {

class OffloadedUpdate;  // train/engine/offloaded_update.h
struct OptimizerConfig;

/// The names of what the optimizer keeps for each weight, as checkpoints have them. All of it is 0 before the first
/// step.
inline constexpr std::array<const char*, 2> optimizer_state{"first_moment", "second_moment"};

class Optimizer {
 public:
  /// Makes the state of this rank's slices, and with a bfloat16 model their weights, under Tag::optimizer; offload: in
  /// host memory. parameters and stream must outlive it.
  Optimizer(Allocator& allocator, const OptimizerConfig& config, ParameterStore& parameters, Stream& stream,
            bool offload = false);
  ~Optimizer();

  /// Sets all state to zero: that before the first step.
  void reset();
  /// Sets weights() to those of a new model, not rounded. Nothing to do where they are the model's own.
  void initialise_weights(std::uint64_t seed);
  /// Brings the sum of squares of the gradients of this rank's slices into sum: float64 [1] of the host, to be read
  /// when the stream has got here. The sum over ranks is the square of the global norm, with every parameter counted
  /// once.
  void sum_of_squares(const TensorView& sum);
  /// Updates this rank's slices of the weights from their gradients times `gradient_scale`. step counts from 1.
  void update(double lr, std::int64_t step, double gradient_scale);

  const std::vector<ParameterSlice>& slices() const { return parameters_->slices(); }
  /// Returns the elements of all slices: what each buffer of state holds.
  std::int64_t elements() const;
  /// Returns a slice's state of this index in optimizer_state, and its weights as they are updated.
  TensorView state(std::size_t index, const ParameterSlice& slice) const { return own(state_[index], slice); }
  TensorView weights(const ParameterSlice& slice) const {
    return master_.empty() ? parameters_->weights(slice) : own(master_, slice);
  }
  /// Returns whether weights() are not the model's own.
  bool has_master_weights() const { return !master_.empty(); }

 private:
  static TensorView own(const Tensor& values, const ParameterSlice& slice) {
    return values.view().flat(slice.offset, slice.offset + slice.count());
  }
  AdamW hyper_;  // of the config; update() completes it
  ParameterStore* parameters_;
  Stream* stream_;
  std::vector<AdamWSlice> updates_;             // of slices(), in their order
  std::vector<Tensor> state_;                   // by name
  Tensor master_;                               // empty where the model computes with the very weights that are updated
  Tensor sum_;                                  // float64 [1]
  std::unique_ptr<OffloadedUpdate> offloaded_;  // null: all is on the device
};

/// Returns the factor that brings a gradient of this norm to at most max_norm; 1 if max_norm is 0 (no clipping).
double clip_factor(double norm, double max_norm);

}  // namespace ringtrain
