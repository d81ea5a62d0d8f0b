#include "train/models/load_weights.h"

#include <algorithm>
#include <memory>

#include "framework/error.h"
#include "framework/profile/progress.h"
#include "kernels/elementwise.h"
#include "layers/model_parameters.h"
#include "train/engine/finite.h"

namespace ringtrain {

namespace {

constexpr std::int64_t large_load = 50'000'000;  // parameters: reading or drawing them may take seconds

/// Throws if a slice holds NaN or infinity: every result of a model with it would be NaN or infinite too.
void require_finite(const TensorView& values, const Parameter& parameter, std::int64_t begin, const std::string& path) {
  const std::int64_t index = first_not_finite(values);
  if (index < 0) return;
  const double value = values.dtype == DType::float32 ? values.as<float>()[index] : values.as<double>()[index];
  fail(ExitCode::checkpoint, "{}: element {} of {} is {}: these weights are not those of a working model", path,
       begin + index, parameter.name, value);
}

class Loader {
 public:
  /// elements: the total number to set.
  Loader(RankState& state, const ModelSource* source, std::uint64_t seed, std::int64_t elements)
      : state_(state), source_(source), seed_(seed) {
    if (source != nullptr) read_ = source->open_weights();
    if (state.rank == 0 && elements >= large_load) {
      progress_ = std::make_unique<Progress>(source != nullptr ? "load" : "initialize", elements);
    }
  }

  /// Sets a slice in host or device memory, rounded if the target is bfloat16: to the source's weights, or to initial
  /// ones if the source does not have this parameter.
  void load(const ParameterSlice& slice, const TensorView& target) {
    const Parameter& parameter = state_.parameters.table()[slice.parameter];
    if (source_ == nullptr || (parameter.adapter && !source_->model.lora.on())) {
      initialize_parameter(state_.stream, parameter, seed_, slice.begin, target);
    } else {
      read(parameter, slice.begin, target);
    }
    done_ += target.numel();
    if (progress_) progress_->update(done_, "", static_cast<double>(done_), "parameters");
  }

 private:
  void read(const Parameter& parameter, std::int64_t begin, const TensorView& target) {
    const std::int64_t end = begin + target.numel();
    const bool staged = !target.device.is_cpu() || target.dtype != state_.staging.view().dtype;
    for (std::int64_t from = begin; from < end; from += RankState::staging_elements) {
      const std::int64_t to = std::min(end, from + RankState::staging_elements);
      const TensorView part = target.flat(from - begin, to - begin);
      const TensorView values = staged ? state_.staging.view().prefix({to - from}) : part;
      read_(parameter, from, values);
      require_finite(values, parameter, from, source_->path);
      if (staged) state_.copy_staged(part, values);
    }
  }

  RankState& state_;
  const ModelSource* source_;
  std::uint64_t seed_;
  WeightReader read_;
  std::unique_ptr<Progress> progress_;
  std::int64_t done_ = 0;  // parameters
};

}  // namespace

void load_weights(RankState& state, const ModelSource* source, std::uint64_t seed) {
  ParameterStore& parameters = state.parameters;
  Optimizer* const optimizer = state.optimizer.get();
  std::vector<ParameterSlice> updated, held = parameters.held();
  if (optimizer != nullptr) {
    updated = optimizer->slices();
    const auto trained = [&](const ParameterSlice& slice) { return parameters.trains(slice.parameter); };
    std::erase_if(held, trained);
  }
  std::int64_t elements = 0;
  for (const auto& slices : {updated, held}) {
    for (const ParameterSlice& slice : slices) elements += slice.count();
  }
  Loader loader(state, source, seed, elements);
  // All threads touch all memory before anything is read: page faults between reads cost three times as much.
  parameters.clear_weights();
  for (const ParameterSlice& slice : updated) {
    loader.load(slice, optimizer->weights(slice));
    if (optimizer->has_master_weights()) {
      convert(state.stream, parameters.weights(slice), optimizer->weights(slice));
    }
  }
  for (const ParameterSlice& slice : held) loader.load(slice, parameters.weights(slice));
  if (optimizer != nullptr) parameters.weights_changed();
}

}  // namespace ringtrain
