#include "train/engine/optimizer.h"

#include "kernels/elementwise.h"
#include "train/engine/offloaded_update.h"

namespace ringtrain {

Optimizer::Optimizer(Allocator& allocator, const OptimizerConfig& config, std::uint64_t seed,
                     ParameterStore& parameters, Stream& stream, double host_share)
    : config_(config),
      seed_(seed),
      parameters_(&parameters),
      stream_(&stream),
      moments_(config.moments == DType::bfloat16 ? config.moments : accumulator(parameters.dtype())),
      has_masters_(parameters.dtype() == DType::bfloat16 && !parameters.has_master_weights()) {
  const double here = static_cast<double>(elements()) * (1 - host_share);
  for (const ParameterSlice& slice : slices()) {
    if (static_cast<double>(slice.offset + slice.count()) <= here) host_begin_ = slice.offset + slice.count();
  }
  const std::int64_t on_host = elements() - host_begin_;
  constexpr std::array names{"first moment", "second moment", "master weights"};
  for (std::size_t kind = 0; kind < here_.size(); ++kind) {
    if (kind == master && !has_masters_) continue;
    const DType dtype = kind == master ? DType::float32 : moments_;
    if (host_begin_ > 0 || on_host == 0)
      here_[kind] = allocator.make(Tag::optimizer, names[kind], dtype, {host_begin_});
    if (on_host > 0) on_host_[kind] = allocator.host().make(Tag::optimizer, names[kind], dtype, {on_host});
  }
  if (on_host > 0) offloaded_ = std::make_unique<OffloadedUpdate>(allocator, stream, has_masters_, moments_, on_host);
  for (const ParameterSlice& slice : slices()) {
    const Parameter& parameter = parameters.table()[slice.parameter];
    updates_[slice.offset >= host_begin_ ? 1 : 0].push_back(
        {.w = weights(slice),
         .m = state(0, slice),
         .v = state(1, slice),
         .g = parameters.gradients(slice),
         .rounded = has_masters_ ? parameters.weights(slice) : TensorView{},
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
  for (const ParameterSlice& slice : slices()) {
    for (std::size_t i = 0; i < optimizer_state.size(); ++i) fill(*stream_, state(i, slice), 0);
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
  if (offloaded_) offloaded_->run(*stream_, updates_[1], hyper);
  adamw_update(*stream_, updates_[0], hyper);
}

double clip_factor(double norm, double max_norm) {
  return max_norm > 0 && norm > max_norm ? max_norm / norm : 1.0;
}

}  // namespace ringtrain
