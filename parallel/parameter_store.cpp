#include "parallel/parameter_store.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "kernels/elementwise.h"

namespace ringtrain {

ParameterStore::ParameterStore(Allocator& allocator, const ParameterTable& table, Stream& stream,
                               const StoreOptions& options, Communicator* world)
    : context_(table, stream, options, world),
      slices_(owned_slices(table, Part::trainable, options.ranks, options.rank)),
      frozen_slices_(owned_slices(table, Part::frozen, options.ranks, options.rank)),
      weights_(allocator, context_),
      gradients_(allocator, context_),
      has_gradient_(table.all().size(), true) {
  for (int bucket = 0; bucket < table.buckets(); ++bucket) {
    buckets_to_finish_ += table.bucket_size(bucket, Part::trainable) > 0 ? 1 : 0;
  }
  to_finish_ = trained_below(table.buckets());
  if (options.ranks > 1 && world && (has_gradients() || weights_.memory().sharded())) {
    communicator_ = world->split(0);
    communicator_->set_stream(stream);
    context_.communicator = communicator_.get();
  }
}

const Parameter& ParameterStore::parameter_of(const char* call, int id) const {
  if (id < 0 || std::cmp_greater_equal(id, table().all().size())) [[unlikely]] {
    fail(ExitCode::usage, "{}: no parameter {}; the table has {}, numbered from 0", call, id, table().all().size());
  }
  return table()[id];
}

/// Returns a parameter that has a gradient here.
const Parameter& ParameterStore::trained_parameter(const char* call, int id) const {
  const Parameter& parameter = parameter_of(call, id);
  if (parameter.part != Part::trainable) [[unlikely]] {
    fail(ExitCode::usage, "{}: {} is frozen and has no gradient; call trains(id) first", call, parameter.name);
  }
  if (!has_gradients()) [[unlikely]] {
    fail(ExitCode::usage, "{}: {} has no gradient, because the store was made without StoreOptions::gradients", call,
         parameter.name);
  }
  return parameter;
}

void ParameterStore::weights_changed() {
  if (context_.options.ranks > 1 || weights_.memory().sharded()) weights_.changed();
}

std::vector<ParameterSlice> ParameterStore::held() const {
  const auto [ranks, rank] =
      weights_.memory().sharded() ? std::pair(context_.options.ranks, context_.options.rank) : std::pair(1, 0);
  std::vector<ParameterSlice> held = owned_slices(table(), Part::trainable, ranks, rank);
  std::ranges::copy(owned_slices(table(), Part::frozen, ranks, rank), std::back_inserter(held));
  std::ranges::sort(held, {}, &ParameterSlice::parameter);
  return held;
}

void ParameterStore::begin_step() {
  gradients_.begin_step();
  has_gradient_.assign(table().all().size(), false);
  to_finish_ = trained_below(table().buckets());
}

void ParameterStore::begin_backward(bool last) {
  last_ = last;
  to_finish_ = trained_below(table().buckets());
}

int ParameterStore::trained_below(int bucket) const {
  while (--bucket >= 0 && table().bucket_size(bucket, Part::trainable) == 0) continue;
  return bucket;
}

bool ParameterStore::begin_gradient(int id) {
  const Parameter& parameter = trained_parameter("begin_gradient", id);
  if (parameter.bucket > to_finish_) [[unlikely]] {
    fail(ExitCode::usage,
         "begin_gradient: the gradient of {} is written after its bucket {} was finished in this micro-batch, so it "
         "would be lost; write it before finish, and call begin_backward once a micro-batch",
         parameter.name, parameter.bucket);
  }
  gradients_.free_slot(parameter.bucket);
  const bool adds = has_gradient_[id];
  has_gradient_[id] = true;
  return adds;
}

TensorView ParameterStore::gradient(int id) const {
  return gradients_.memory().of_parameter(trained_parameter("gradient", id));
}

TensorView ParameterStore::gradient_to_add_to(int id) {
  const bool adds = begin_gradient(id);
  const TensorView result = gradient(id);
  if (!adds) fill(context_.stream, result, 0.0);
  return result;
}

void ParameterStore::finish(int bucket, bool all_written) {
  context_.check_bucket("finish", bucket);
  if (table().bucket_size(bucket, Part::trainable) == 0) return;
  if (bucket != to_finish_) {
    fail(ExitCode::usage,
         "finish: bucket {} is finished {}; backward finishes each bucket once a micro-batch, from the last to the "
         "first",
         bucket, to_finish_ == none ? "after all were" : fmt::format("where bucket {} comes next", to_finish_));
  }
  for (std::size_t id = 0; id < table().all().size(); ++id) {
    if (table().all()[id].bucket != bucket || !trains(static_cast<int>(id))) continue;
    if (!has_gradient_[id]) {
      if (all_written) {
        fail(ExitCode::usage,
             "finish: backward wrote no gradient of {}; backward must call begin_gradient for each trainable parameter "
             "of the layer, and then write that gradient",
             table().all()[id].name);
      }
      gradient_to_add_to(static_cast<int>(id));
    }
    if (gradients_.memory().sharded())
      has_gradient_[id] = false;  // the next micro-batch starts again: sums are in the slice
  }
  to_finish_ = trained_below(bucket);
  if (last_) ++finished_;
  gradients_.complete(bucket, last_);
}

void ParameterStore::finish_step() {
  if (finished_ != buckets_to_finish_) {
    fail(ExitCode::usage,
         "finish_step: there are {} buckets with something to train, but {} were finished in the step's last "
         "micro-batch, which begin_backward(true) begins; backward must finish each of them once",
         buckets_to_finish_, finished_);
  }
  finished_ = 0;
  gradients_.finish();
}

bool ParameterStore::follows(const ParameterSlice& slice, const ParameterSlice& before) const {
  return slice.parameter == before.parameter + 1 && slice.begin == 0 &&
         before.end == table()[before.parameter].shape.numel();
}

}  // namespace ringtrain
