#include "train/engine/optimizer.h"

#include <algorithm>
#include <string>

#include "kernels/elementwise.h"
#include "layers/model_parameters.h"
#include "train/engine/offloaded_update.h"

namespace ringtrain {

Optimizer::Optimizer(Allocator& allocator, const OptimizerConfig& config, std::uint64_t seed,
                     ParameterStore& parameters, Stream& stream, bool offload)
    : config_(config), seed_(seed), parameters_(&parameters), stream_(&stream) {
  const DType model_dtype = parameters.dtype(), dtype = accumulator(model_dtype);
  const DType moments = config.moments == DType::bfloat16 ? config.moments : dtype;
  Allocator& memory = offload ? allocator.host() : allocator;
  for (std::string words : optimizer_state) {
    std::replace(words.begin(), words.end(), '_', ' ');
    state_.push_back(memory.make(Tag::optimizer, words, moments, {elements()}));
  }
  const auto masters = dtype != model_dtype ? std::optional(dtype) : std::nullopt;
  if (masters) master_ = memory.make(Tag::optimizer, "master weights", dtype, {elements()});
  if (offload) offloaded_ = std::make_unique<OffloadedUpdate>(allocator, stream, masters, moments, elements());
  for (const ParameterSlice& slice : slices()) {
    const Parameter& parameter = parameters.table()[slice.parameter];
    updates_.push_back({.w = weights(slice),
                        .m = state(0, slice),
                        .v = state(1, slice),
                        .g = parameters.gradients(slice),
                        .rounded = master_.empty() ? TensorView{} : parameters.weights(slice),
                        .weight_decay = parameter.decay ? config.weight_decay : 0,
                        .first_element = (parameter.stream << 40) + static_cast<std::uint64_t>(slice.begin)});
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

void Optimizer::initialize_weights(std::uint64_t seed) {
  if (!has_master_weights()) return;
  for (const ParameterSlice& slice : slices()) {
    initialize_parameter(*stream_, parameters_->table()[slice.parameter], seed, slice.begin, weights(slice));
  }
}

void Optimizer::sum_of_squares(const TensorView& sum) {
  fill(*stream_, sum_, 0);
  const std::vector<ParameterSlice>& slices = parameters_->slices();
  for (std::size_t first = 0, next = 0; first < slices.size(); first = next) {
    // On a GPU, adjacent slices take one pass: a launch for each would take longer than the sums. The padding between
    // them is 0.
    do ++next;
    while (stream_->on_cuda() && next < slices.size() && parameters_->follows(slices[next], slices[next - 1]));
    ringtrain::sum_of_squares(*stream_, sum_, parameters_->gradients(slices[first], slices[next - 1]), true);
  }
  copy_in_order(*stream_, sum, sum_);
}

void Optimizer::update(double lr, std::int64_t step, double gradient_scale) {
  const AdamW hyper{lr, config_.beta1, config_.beta2, config_.eps, step, gradient_scale, seed_};
  if (offloaded_) {
    offloaded_->run(*stream_, updates_, hyper);
  } else {
    adamw_update(*stream_, updates_, hyper);
  }
}

double clip_factor(double norm, double max_norm) {
  return max_norm > 0 && norm > max_norm ? max_norm / norm : 1.0;
}

}  // namespace ringtrain
