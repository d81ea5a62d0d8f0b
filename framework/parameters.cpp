#include "framework/parameters.h"

#include <utility>

namespace ringtrain {

namespace {
constexpr std::int64_t alignment = 16;  // elements
}

int ParameterTable::add(Parameter parameter) {
  ensure(parameters_.empty() || parameters_.back().bucket <= parameter.bucket, "parameters are added bucket by bucket");
  parameter.offset = size_;
  size_ += (parameter.shape.numel() + alignment - 1) / alignment * alignment;
  parameters_.push_back(std::move(parameter));
  return static_cast<int>(parameters_.size()) - 1;
}

int ParameterTable::buckets() const {
  return parameters_.empty() ? 0 : parameters_.back().bucket + 1;
}

std::int64_t ParameterTable::bucket_begin(int bucket) const {
  for (const Parameter& parameter : parameters_) {
    if (parameter.bucket >= bucket) return parameter.offset;
  }
  return size_;
}

std::int64_t ParameterTable::bucket_end(int bucket) const {
  return bucket_begin(bucket + 1);
}

std::int64_t ParameterTable::count() const {
  std::int64_t sum = 0;
  for (const Parameter& parameter : parameters_) sum += parameter.shape.numel();
  return sum;
}

Parameters::Parameters(Allocator& allocator, const ParameterTable& table, DType dtype, bool with_gradients)
    : table_(&table),
      weights_(allocator.make(Tag::weights, "weights", dtype, {table.flat_size()})),
      has_gradient_(table.all().size(), true) {
  if (with_gradients) gradients_ = allocator.make(Tag::gradients, "gradients", accumulator(dtype), {table.flat_size()});
}

void Parameters::acquire(int bucket) {
  ensure(bucket >= 0 && bucket < table_->buckets(), "a bucket that exists");
}
void Parameters::release(int bucket) {
  ensure(bucket >= 0 && bucket < table_->buckets(), "a bucket that exists");
}

bool Parameters::begin_write(int id) {
  const bool adds = has_gradient(id);
  has_gradient_[id] = true;
  return adds;
}

TensorView Parameters::weight(int id) const {
  const Parameter& parameter = (*table_)[id];
  return weights_.view().flat(parameter.offset, parameter.offset + parameter.shape.numel()).reshape(parameter.shape);
}

TensorView Parameters::gradient(int id) const {
  const Parameter& parameter = (*table_)[id];
  return gradients_.view().flat(parameter.offset, parameter.offset + parameter.shape.numel()).reshape(parameter.shape);
}

TensorView Parameters::bucket_weights(int bucket) const {
  return weights_.view().flat(table_->bucket_begin(bucket), table_->bucket_end(bucket));
}

TensorView Parameters::bucket_gradients(int bucket) const {
  return gradients_.view().flat(table_->bucket_begin(bucket), table_->bucket_end(bucket));
}

}  // namespace ringtrain
