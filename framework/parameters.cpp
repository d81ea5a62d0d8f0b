#include "framework/parameters.h"

#include <utility>

namespace ringtrain {

namespace {
constexpr std::int64_t alignment = 16;  // elements
}

int ParameterTable::add(Parameter parameter) {
  ensure(parameters_.empty() || parameters_.back().group <= parameter.group, "parameters are added group by group");
  parameter.offset = size_;
  size_ += (parameter.shape.numel() + alignment - 1) / alignment * alignment;
  parameters_.push_back(std::move(parameter));
  return static_cast<int>(parameters_.size()) - 1;
}

int ParameterTable::groups() const {
  return parameters_.empty() ? 0 : parameters_.back().group + 1;
}

std::int64_t ParameterTable::group_begin(int group) const {
  for (const Parameter& parameter : parameters_) {
    if (parameter.group >= group) return parameter.offset;
  }
  return size_;
}

std::int64_t ParameterTable::group_end(int group) const {
  return group_begin(group + 1);
}

std::int64_t ParameterTable::count() const {
  std::int64_t sum = 0;
  for (const Parameter& parameter : parameters_) sum += parameter.shape.numel();
  return sum;
}

Parameters::Parameters(Allocator& allocator, const ParameterTable& table, DType dtype, bool with_gradients)
    : table_(&table), weights_(allocator.make(Tag::weights, "weights", dtype, {table.flat_size()})) {
  if (with_gradients) gradients_ = allocator.make(Tag::gradients, "gradients", accumulator(dtype), {table.flat_size()});
}

void Parameters::acquire(int group) {
  ensure(group >= 0 && group < table_->groups(), "a group that exists");
}
void Parameters::release(int group) {
  ensure(group >= 0 && group < table_->groups(), "a group that exists");
}

TensorView Parameters::weight(int id) const {
  const Parameter& parameter = (*table_)[id];
  return weights_.view().flat(parameter.offset, parameter.offset + parameter.shape.numel()).reshape(parameter.shape);
}

TensorView Parameters::gradient(int id) const {
  const Parameter& parameter = (*table_)[id];
  return gradients_.view().flat(parameter.offset, parameter.offset + parameter.shape.numel()).reshape(parameter.shape);
}

TensorView Parameters::group_weights(int group) const {
  return weights_.view().flat(table_->group_begin(group), table_->group_end(group));
}

TensorView Parameters::group_gradients(int group) const {
  return gradients_.view().flat(table_->group_begin(group), table_->group_end(group));
}

}  // namespace ringtrain
