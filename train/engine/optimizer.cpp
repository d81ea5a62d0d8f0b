#include "train/engine/optimizer.h"

#include <algorithm>
#include <utility>

#include "kernels/elementwise.h"
#include "layers/model_parameters.h"
#include "layers/transformer.h"
#include "parallel/gradient_reduction.h"

namespace ringtrain {

std::vector<ParameterSlice> owned_slices(const ParameterTable& table, int ranks, int rank) {
  std::vector<ParameterSlice> slices;
  std::int64_t offset_of_state = 0;
  const auto& all = table.all();
  std::size_t id = 0;
  for (int bucket = 0; bucket < table.buckets(); ++bucket) {
    const std::int64_t start = table.bucket_begin(bucket);
    const Slice owned = GradientReduction::owned(table, bucket, ranks, rank);  // relative to the bucket
    for (; id < all.size() && all[id].bucket == bucket; ++id) {
      const std::int64_t offset = all[id].offset, count = all[id].shape.numel();
      const std::int64_t begin = std::max(offset, start + owned.begin) - offset;
      const std::int64_t end = std::min(offset + count, start + owned.end) - offset;
      if (begin >= end) continue;
      slices.push_back({static_cast<int>(id), begin, end, offset_of_state});
      offset_of_state += end - begin;
    }
  }
  return slices;
}

std::vector<std::int64_t> owned_elements(const ParameterTable& table, int ranks) {
  std::vector<std::int64_t> elements(ranks, 0);
  const auto& all = table.all();
  std::size_t id = 0;
  for (int bucket = 0; bucket < table.buckets(); ++bucket) {
    // Parameters and slices both ascend: the last rank of one parameter may be the first of the next.
    int rank = 0;
    for (; id < all.size() && all[id].bucket == bucket; ++id) {
      const std::int64_t begin = all[id].offset - table.bucket_begin(bucket), end = begin + all[id].shape.numel();
      for (Slice owned = GradientReduction::owned(table, bucket, ranks, rank);;
           owned = GradientReduction::owned(table, bucket, ranks, ++rank)) {
        elements[rank] += std::max<std::int64_t>(0, std::min(end, owned.end) - std::max(begin, owned.begin));
        if (owned.end >= end || rank + 1 == ranks) break;
      }
    }
  }
  return elements;
}

Optimizer::Optimizer(Allocator& allocator, const OptimizerConfig& config, Parameters& parameters, Stream& stream,
                     int ranks, int rank, bool offload, std::unique_ptr<UpdateRule> rule)
    : rule_(rule ? std::move(rule) : make_update_rule(config)),
      state_names_(rule_->state_names()),
      parameters_(&parameters),
      stream_(&stream),
      slices_(owned_slices(parameters.table(), ranks, rank)) {
  const DType model_dtype = parameters.all_weights().dtype, dtype = accumulator(model_dtype);
  Allocator& memory = offload ? allocator.host() : allocator;
  for (const std::string& name : state_names_) {
    std::string words = name;
    std::replace(words.begin(), words.end(), '_', ' ');
    state_.push_back(memory.make(Tag::optimizer, words, dtype, {elements()}));
  }
  if (dtype != model_dtype) master_ = memory.make(Tag::optimizer, "master weights", dtype, {elements()});
  if (offload) offloaded_ = std::make_unique<OffloadedUpdate>(allocator, stream, state_names_, dtype, elements());
  for (const ParameterSlice& slice : slices_) {
    const Parameter& parameter = parameters.table()[slice.parameter];
    std::vector<TensorView> state;
    for (std::size_t i = 0; i < state_.size(); ++i) state.push_back(this->state(i, slice));
    updates_.push_back({.weights = weights(slice),
                        .state = std::move(state),
                        .gradients = parameters.gradient(slice.parameter).flat(slice.begin, slice.end),
                        .rounded = master_.empty() ? TensorView{} : model_weights(slice),
                        .weight_decay = parameter.decay ? config.weight_decay : 0});
  }
  sum_ = allocator.make(Tag::workspace, "gradient norm", DType::float64, {1});
}

std::int64_t Optimizer::elements() const {
  return slices_.empty() ? 0 : slices_.back().offset + slices_.back().count();
}

void Optimizer::reset() {
  for (const Tensor& values : state_) fill(*stream_, values, 0);
}

void Optimizer::initialise_weights(std::uint64_t seed) {
  if (!has_master_weights()) return;
  for (const ParameterSlice& slice : slices_) {
    initialise_parameter(*stream_, parameters_->table(), slice.parameter, seed, slice.begin, weights(slice));
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
  const ParameterTable& table = parameters_->table();
  const auto begin_of = [&](const ParameterSlice& slice) { return table[slice.parameter].offset + slice.begin; };
  const auto end_of = [&](const ParameterSlice& slice) { return table[slice.parameter].offset + slice.end; };
  const auto follows = [&](const ParameterSlice& slice, const ParameterSlice& before) {
    return slice.parameter == before.parameter + 1 && slice.begin == 0 &&
           before.end == table[before.parameter].shape.numel();
  };
  for (std::size_t first = 0, next = 0; first < slices_.size(); first = next) {
    // A GPU takes slices that follow each other in one pass: a launch for each would take longer than the sums. Padding
    // between them is 0.
    do ++next;
    while (stream_->on_cuda() && next < slices_.size() && follows(slices_[next], slices_[next - 1]));
    ringtrain::sum_of_squares(
        *stream_, sum_, parameters_->all_gradients().flat(begin_of(slices_[first]), end_of(slices_[next - 1])), true);
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
