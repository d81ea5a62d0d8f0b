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

constexpr std::int64_t large_load = 50'000'000;  // parameters: reading them may take seconds

/// Throws if a slice holds NaN or infinity: a model trained or evaluated from it would give nothing else.
void require_finite(const TensorView& values, const Parameter& parameter, std::int64_t begin, const std::string& path) {
  const std::int64_t index = first_not_finite(values);
  if (index < 0) return;
  const double value = values.dtype == DType::float32 ? values.as<float>()[index] : values.as<double>()[index];
  fail(ExitCode::checkpoint, "{}: element {} of {} is {}: these weights are not those of a working model", path,
       begin + index, parameter.name, value);
}

class Loader {
 public:
  Loader(RankState& state, const ModelSource& source, std::uint64_t seed, const std::vector<ParameterSlice>& held)
      : state_(state), source_(source), seed_(seed), weights_(source.open_weights()) {
    std::int64_t total = 0;
    for (const ParameterSlice& slice : held) total += slice.count();
    if (state.rank == 0 && total >= large_load) progress_ = std::make_unique<Progress>("load", total);
  }

  /// Reads elements [begin, begin + target.numel()) of a tensor into host or device memory, rounded if the target is
  /// bfloat16.
  void read(const Parameter& parameter, std::int64_t begin, const TensorView& target) {
    if (parameter.adapter && !source_.model.lora.on()) {
      return initialise_parameter(state_.stream, parameter, seed_, begin, target);
    }
    const std::int64_t end = begin + target.numel();
    const bool staged = !target.device.is_cpu() || target.dtype != state_.staging.view().dtype;
    for (std::int64_t from = begin; from < end; from += RankState::staging_elements) {
      const std::int64_t to = std::min(end, from + RankState::staging_elements);
      const TensorView part = target.flat(from - begin, to - begin);
      const TensorView values = staged ? state_.staging.view().prefix({to - from}) : part;
      weights_->read(parameter, from, values);
      require_finite(values, parameter, from, source_.path);
      if (!staged) continue;
      copy(state_.stream, part, target.dtype == DType::bfloat16 ? rounded_in_place(values) : values);
      state_.stream.synchronize();  // the next slice comes into the same staging
    }
  }
  /// The same of what the rank holds, which counts as progress.
  void read_held(const Parameter& parameter, std::int64_t begin, const TensorView& target) {
    read(parameter, begin, target);
    done_ += target.numel();
    if (progress_) progress_->update(done_, "", static_cast<double>(done_), "parameters");
  }

 private:
  /// Returns float32 numbers of the host as bfloat16 ones, in the front half of the same memory.
  static TensorView rounded_in_place(const TensorView& values) {
    const float* const from = values.as<float>();
    TensorView to = values;
    to.dtype = DType::bfloat16;
    for (std::int64_t i = 0; i < values.numel(); ++i) to.as<BFloat16>()[i] = BFloat16::rounded(from[i]);
    return to;
  }

  RankState& state_;
  const ModelSource& source_;
  std::uint64_t seed_;
  std::unique_ptr<WeightSource> weights_;
  std::unique_ptr<Progress> progress_;
  std::int64_t done_ = 0;  // parameters
};

}  // namespace

void load_weights(RankState& state, const ModelSource& source, std::uint64_t seed) {
  const std::vector<ParameterSlice> held = state.parameters.held();
  Loader loader(state, source, seed, held);
  const ParameterTable& table = state.parameters.table();
  if (state.optimizer && state.optimizer->has_master_weights()) {
    for (const ParameterSlice& slice : state.optimizer->slices()) {
      loader.read(table[slice.parameter], slice.begin, state.optimizer->weights(slice));
    }
  }
  // All memory is touched before anything is read, by all threads: page faults between reads cost three times as much.
  state.parameters.clear_weights();
  for (const ParameterSlice& slice : held)
    loader.read_held(table[slice.parameter], slice.begin, state.parameters.weights(slice));
}

}  // namespace ringtrain
