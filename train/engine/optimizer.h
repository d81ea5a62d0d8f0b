// The optimizer: AdamW (kernels/adamw.h) with its state sharded over all dp x sp ranks. A rank updates its own slices
// of the parameters (parallel/parameter_slices.h), and holds state only for these. If the model computes in bfloat16,
// the rank also holds the slices' float32 weights (unless the store holds them): they are the state, and the model's
// weights are these, rounded. It knows global names, no mesh: a checkpoint stores the same slices. The trainer calls it
// between the reduction of gradients and the gather of weights.
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
  /// Makes the state of this rank's slices, and with a bfloat16 model their weights, under Tag::optimizer; host_share:
  /// the share that is in host memory, in whole slices, the last ones. seed: for moments that are rounded at random.
  /// parameters and stream must outlive it.
  Optimizer(Allocator& allocator, const OptimizerConfig& config, std::uint64_t seed, ParameterStore& parameters,
            Stream& stream, double host_share = 0);
  ~Optimizer();

  /// Sets all state to zero, as before the first step.
  void reset();
  /// Writes the sum of squares of the gradients of this rank's slices into sum: float64 [1] on the host, valid when the
  /// stream has reached this point. The sum over ranks is the square of the global norm, counting every parameter once.
  void sum_of_squares(const TensorView& sum);
  /// Updates this rank's slices of the weights from their gradients times `gradient_scale`. step counts from 1.
  void update(double lr, std::int64_t step, double gradient_scale);

  const std::vector<ParameterSlice>& slices() const { return parameters_->slices(); }
  /// Returns the number of elements in all slices: the size of each state buffer.
  std::int64_t elements() const;
  /// Returns a slice's state with this index in optimizer_state, and its weights as they are updated.
  TensorView state(std::size_t index, const ParameterSlice& slice) const { return slice_of(index, slice); }
  TensorView weights(const ParameterSlice& slice) const {
    return has_master_weights() ? slice_of(master, slice) : parameters_->weights(slice);
  }
  DType moments_dtype() const { return moments_; }
  /// Returns whether weights() are not the store's.
  bool has_master_weights() const { return has_masters_; }

 private:
  static constexpr std::size_t master = optimizer_state.size();
  TensorView slice_of(std::size_t kind, const ParameterSlice& slice) const {
    const bool on_host = slice.offset >= host_begin_;
    const std::int64_t begin = slice.offset - (on_host ? host_begin_ : 0);
    return (on_host ? on_host_ : here_)[kind].view().flat(begin, begin + slice.count());
  }
  const OptimizerConfig config_;
  const std::uint64_t seed_;
  ParameterStore* parameters_;
  Stream* stream_;
  const DType moments_;
  const bool has_masters_;
  std::int64_t host_begin_ = 0;         // the offset of the first slice whose state is in host memory
  std::vector<AdamWSlice> updates_[2];  // of slices(), in their order: with state on the device, and on the host
  std::array<Tensor, 1 + optimizer_state.size()> here_, on_host_;  // moments by name, and master weights
  Tensor sum_;                                                     // float64 [1]
  std::unique_ptr<OffloadedUpdate> offloaded_;                     // null: everything is on the device
};

/// Returns the factor that scales a gradient of this norm down to at most max_norm; 1 if max_norm is 0 (no clipping).
double clip_factor(double norm, double max_norm);

}  // namespace ringtrain
