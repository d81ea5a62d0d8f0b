#include "framework/parameter_table.h"

#include <utility>

namespace ringtrain {

constexpr std::int64_t slice_alignment = 16;  // elements

int ParameterTable::add(Parameter parameter, const CallerLine& line) {
  const int least = parameters_.empty() ? 0 : parameters_.back().bucket;
  if (parameter.bucket < least) {
    refuse_call(line, fmt::format("{} is added to bucket {}, but the parameter before it is in bucket {}: the bucket "
                                  "numbers must not decrease",
                                  parameter.name, parameter.bucket, least));
  }
  while (buckets() <= parameter.bucket) ends_.push_back(ends_.empty() ? decltype(ends_)::value_type{} : ends_.back());
  std::int64_t& end = ends_.back()[index_of(parameter.part)];
  parameter.offset = end;
  end += (parameter.shape.numel() + slice_alignment - 1) / slice_alignment * slice_alignment;
  parameters_.push_back(std::move(parameter));
  return static_cast<int>(parameters_.size()) - 1;
}

std::int64_t ParameterTable::bucket_begin(int bucket, Part part) const {
  return bucket == 0 ? 0 : bucket_end(bucket - 1, part);
}

std::int64_t ParameterTable::bucket_end(int bucket, Part part) const {
  return ends_[bucket][index_of(part)];
}

std::int64_t ParameterTable::flat_size(Part part) const {
  return ends_.empty() ? 0 : ends_.back()[index_of(part)];
}

std::int64_t ParameterTable::count() const {
  return count(Part::trainable) + count(Part::frozen);
}

std::int64_t ParameterTable::count(Part part) const {
  std::int64_t sum = 0;
  for (const Parameter& parameter : parameters_) sum += parameter.part == part ? parameter.shape.numel() : 0;
  return sum;
}

int ParameterTable::lowest_trained() const {
  int bucket = 0;
  while (bucket + 1 < buckets() && bucket_size(bucket, Part::trainable) == 0) ++bucket;
  return bucket;
}

}  // namespace ringtrain
