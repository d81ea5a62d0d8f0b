#include "train/models/load_weights.h"

#include <algorithm>
#include <memory>

#include "framework/error.h"
#include "framework/profile/progress.h"
#include "layers/model_parameters.h"
#include "train/engine/finite.h"

namespace ringtrain {

namespace {

constexpr std::int64_t large_load = 50'000'000;  // parameters: reading them may take seconds

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
  /// elements: the total number to read.
  Loader(RankState& state, const ModelSource& source, std::uint64_t seed, std::int64_t elements)
      : state_(state), source_(source), seed_(seed), read_(source.open_weights()) {
    if (state.rank == 0 && elements >= large_load) progress_ = std::make_unique<Progress>("load", elements);
  }

  /// Reads elements [begin, begin + target.numel()) of a tensor into host or device memory, rounded if the target is
  /// bfloat16: those of the source, or initial ones for an adapter that the source does not have.
  void load(const Parameter& parameter, std::int64_t begin, const TensorView& target) {
    if (parameter.adapter && !source_.model.lora.on()) {
      initialize_parameter(state_.stream, parameter, seed_, begin, target);
    } else {
      read(parameter, begin, target);
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
      require_finite(values, parameter, from, source_.path);
      if (staged) state_.copy_staged(part, values);
    }
  }

  RankState& state_;
  const ModelSource& source_;
  std::uint64_t seed_;
  WeightReader read_;
  std::unique_ptr<Progress> progress_;
  std::int64_t done_ = 0;  // parameters
};

}  // namespace

void load_weights(RankState& state, const ModelSource& source, std::uint64_t seed) {
  const ParameterTable& table = state.parameters.table();
  const std::vector<ParameterSlice> held = state.parameters.held();
  std::vector<ParameterSlice> master;  // empty: the model computes directly with the updated weights
  if (state.optimizer && state.optimizer->has_master_weights()) master = state.optimizer->slices();
  std::int64_t elements = 0;
  for (const auto& slices : {master, held}) {
    for (const ParameterSlice& slice : slices) elements += slice.count();
  }
  Loader loader(state, source, seed, elements);
  for (const ParameterSlice& slice : master) {
    loader.load(table[slice.parameter], slice.begin, state.optimizer->weights(slice));
  }
  // All threads touch all memory before anything is read: page faults between reads cost three times as much.
  state.parameters.clear_weights();
  for (const ParameterSlice& slice : held) {
    loader.load(table[slice.parameter], slice.begin, state.parameters.weights(slice));
  }
}

}  // namespace ringtrain
