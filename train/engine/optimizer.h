// The optimizer: AdamW (kernels/adamw.h) with its state sharded over all dp x sp ranks. A rank updates its own slices
// of the parameters (parallel/parameter_slices.h), and holds state only for these. If the model computes in bfloat16,
// the rank also holds the slices' float32 weights: they are the state, and the model's weights are these, rounded. It
// knows global names, no mesh: a checkpoint stores the same slices. The trainer calls it between the reduction of
// gradients and the gather of weights.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "framework/allocator.h"
#include "framework/config/config.h"
#include "framework/stream.h"
#include "parallel/parameter_store.h"

namespace ringtrain {

class OffloadedUpdate;  // train/engine/offloaded_update.h
struct AdamWSlice;      // kernels/adamw.h

/// The names of what the optimizer keeps for each weight, as in checkpoints. All of it is 0 before the first step.
inline constexpr std::array<const char*, 2> optimizer_state{"first_moment", "second_moment"};

class Optimizer {
 public:
  /// Makes the state of this rank's slices, and with a bfloat16 model their weights, under Tag::optimizer; offload: in
  /// host memory. seed: for moments that are rounded at random. parameters and stream must outlive it.
  Optimizer(Allocator& allocator, const OptimizerConfig& config, std::uint64_t seed, ParameterStore& parameters,
            Stream& stream, bool offload = false);
  ~Optimizer();

  /// Sets all state to zero, as before the first step.
  void reset();
  /// Sets weights() to those of a new model, not rounded. Does nothing if they are the model's own.
  void initialize_weights(std::uint64_t seed);
  /// Writes the sum of squares of the gradients of this rank's slices into sum: float64 [1] on the host, valid when the
  /// stream has reached this point. The sum over ranks is the square of the global norm, counting every parameter once.
  void sum_of_squares(const TensorView& sum);
  /// Updates this rank's slices of the weights from their gradients times `gradient_scale`. step counts from 1.
  void update(double lr, std::int64_t step, double gradient_scale);

  const std::vector<ParameterSlice>& slices() const { return parameters_->slices(); }
  /// Returns the number of elements in all slices: the size of each state buffer.
  std::int64_t elements() const;
  /// Returns a slice's state with this index in optimizer_state, and its weights as they are updated.
  TensorView state(std::size_t index, const ParameterSlice& slice) const { return slice_of(state_[index], slice); }
  TensorView weights(const ParameterSlice& slice) const {
    return master_.empty() ? parameters_->weights(slice) : slice_of(master_, slice);
  }
  DType moments_dtype() const { return state_[0].view().dtype; }
  /// Returns whether weights() are not the model's own.
  bool has_master_weights() const { return !master_.empty(); }

 private:
  static TensorView slice_of(const Tensor& values, const ParameterSlice& slice) {
    return values.view().flat(slice.offset, slice.offset + slice.count());
  }
  const OptimizerConfig config_;
  const std::uint64_t seed_;
  ParameterStore* parameters_;
  Stream* stream_;
  std::vector<AdamWSlice> updates_;             // of slices(), in their order
  std::vector<Tensor> state_;                   // by name
  Tensor master_;                               // empty if the model computes directly with the updated weights
  Tensor sum_;                                  // float64 [1]
  std::unique_ptr<OffloadedUpdate> offloaded_;  // null: everything is on the device
};

/// Returns the factor that scales a gradient of this norm down to at most max_norm; 1 if max_norm is 0 (no clipping).
double clip_factor(double norm, double max_norm);

}  // namespace ringtrain
