#include "train/engine/optimizer.h"

#include <algorithm>
#include <utility>

#include "framework/config/config.h"
#include "kernels/elementwise.h"
#include "layers/model_parameters.h"
#include "train/engine/offloaded_update.h"
#include "train/engine/update_rule.h"

namespace ringtrain {

Optimizer::Optimizer(Allocator& allocator, const OptimizerConfig& config, ParameterStore& parameters, Stream& stream,
                     bool offload, std::unique_ptr<UpdateRule> rule)
    : rule_(rule ? std::move(rule) : make_update_rule(config)),
      state_names_(rule_->state_names()),
      parameters_(&parameters),
      stream_(&stream) {
  const DType model_dtype = parameters.dtype(), dtype = accumulator(model_dtype);
  Allocator& memory = offload ? allocator.host() : allocator;
  for (const std::string& name : state_names_) {
    std::string words = name;
    std::replace(words.begin(), words.end(), '_', ' ');
    state_.push_back(memory.make(Tag::optimizer, words, dtype, {elements()}));
  }
  if (dtype != model_dtype) master_ = memory.make(Tag::optimizer, "master weights", dtype, {elements()});
  if (offload) offloaded_ = std::make_unique<OffloadedUpdate>(allocator, stream, state_names_, dtype, elements());
  for (const ParameterSlice& slice : slices()) {
    const Parameter& parameter = parameters.table()[slice.parameter];
    std::vector<TensorView> state;
    for (std::size_t i = 0; i < state_.size(); ++i) state.push_back(this->state(i, slice));
    updates_.push_back({.weights = weights(slice),
                        .state = std::move(state),
                        .gradients = parameters.gradients(slice),
                        .rounded = master_.empty() ? TensorView{} : parameters.weights(slice),
                        .weight_decay = parameter.decay ? config.weight_decay : 0});
  }
  sum_ = allocator.make(Tag::workspace, "gradient norm", DType::float64, {1});
}

Optimizer::~Optimizer() = default;

std::int64_t Optimizer::elements() const {
  return slices().empty() ? 0 : slices().back().offset + slices().back().count();
}

void Optimizer::reset() {
  for (const Tensor& values : state_) fill(*stream_, values, 0);
}

void Optimizer::initialise_weights(std::uint64_t seed) {
  if (!has_master_weights()) return;
  for (const ParameterSlice& slice : slices()) {
    initialise_parameter(*stream_, parameters_->table()[slice.parameter], seed, slice.begin, weights(slice));
  }
}

double Optimizer::sum_of_squares() {
  double sum = 0;
  sum_of_squares(host_view(&sum, {1}));
  stream_->synchronize();
  return sum;
}

void Optimizer::sum_of_squares(const TensorView& sum) {
  fill(*stream_, sum_, 0);
  const std::vector<ParameterSlice>& slices = parameters_->slices();
  for (std::size_t first = 0, next = 0; first < slices.size(); first = next) {
    // A GPU takes slices that follow each other in one pass: a launch for each would take longer than the sums. Padding
    // between them is 0.
    do ++next;
    while (stream_->on_cuda() && next < slices.size() && parameters_->follows(slices[next], slices[next - 1]));
    ringtrain::sum_of_squares(*stream_, sum_, parameters_->gradients(slices[first], slices[next - 1]), true);
  }
  copy_in_order(*stream_, sum, sum_);
}

void Optimizer::update(double lr, std::int64_t step, double gradient_scale) {
  const UpdateStep values{.lr = lr, .step = step, .gradient_scale = gradient_scale};
  if (offloaded_) {
    offloaded_->run(*stream_, *rule_, updates_, values);
  } else {
    rule_->update(*stream_, updates_, values);
  }
}

double clip_factor(double norm, double max_norm) {
  return max_norm > 0 && norm > max_norm ? max_norm / norm : 1.0;
}

}  // namespace ringtrain
