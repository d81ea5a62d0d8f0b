// What an optimizer is: the names of what it keeps beside each weight, and an update of slices. Optimizer holds that
// state, shards it over the ranks and calls the update; the memory plan, snapshots and checkpoints follow from the
// names.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "framework/stream.h"
#include "framework/tensor.h"

namespace ringtrain {

struct OptimizerConfig;

/// Elements of one parameter, and what belongs to them: views of n elements of one dtype, float32 or float64.
struct SliceUpdate {
  TensorView weights;             // updated
  std::vector<TensorView> state;  // in the order of state_names(); updated
  TensorView gradients;
  TensorView rounded;  // empty, or the weights that the model computes with, in bfloat16: written (CUDA)
  double weight_decay = 0;
};

/// What changes from step to step.
struct UpdateStep {
  double lr = 0;
  std::int64_t step = 1;      // counts from 1
  double gradient_scale = 1;  // the clip factor: gradients are multiplied by it first
};

class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  /// Returns the names of what it keeps for each weight, as checkpoints have them. All of it is 0 before the first
  /// step.
  virtual std::vector<std::string> state_names() const = 0;
  /// Updates the slices. Elementwise: how parameters are cut into slices changes no bit.
  virtual void update(Stream& stream, std::span<const SliceUpdate> slices, const UpdateStep& step) = 0;
};

/// Returns the rule that the config names.
std::unique_ptr<UpdateRule> make_update_rule(const OptimizerConfig& config);

}  // namespace ringtrain
