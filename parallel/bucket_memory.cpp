#include <algorithm>

#include "kernels/elementwise.h"
#include "parallel/store_buckets.h"

namespace ringtrain {

BucketMemory::BucketMemory(Allocator& allocator, const StoreContext& context, Tag tag, DType dtype, DType held,
                           std::span<const Part> parts, bool sharded, const char* buffer_name)
    : context_(context), sharded_(sharded) {
  const ParameterTable& table = context.table;
  for (const Part part : parts) {
    offsets_[index_of(part)] = shard_offsets(table, part, context.options.ranks, context.options.rank);
    const std::int64_t size = sharded ? offsets_[index_of(part)].back() : table.flat_size(part);
    const std::string name = fmt::format("{}{}", part == Part::frozen ? "frozen " : "", name_of(tag));
    const DType held_dtype = sharded && part == Part::trainable ? held : dtype;
    if (size > 0) held_[index_of(part)] = allocator.make(tag, name, held_dtype, {size});
  }
  std::array<std::int64_t, StoreContext::slots> largest{};
  for (int bucket = 0; sharded && bucket < table.buckets(); ++bucket) {
    std::int64_t size = 0;
    for (const Part part : parts) size += table.bucket_size(bucket, part);
    largest[context.slot_of(bucket)] = std::max(largest[context.slot_of(bucket)], size);
  }
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (largest[i] > 0) slots_[i] = allocator.make(tag, fmt::format("{} {}", buffer_name, i), dtype, {largest[i]});
  }
}

TensorView BucketMemory::of_bucket(int bucket, Part part) const {
  const ParameterTable& table = context_.table;
  if (!sharded_) {
    return held_[index_of(part)].view().flat(table.bucket_begin(bucket, part), table.bucket_end(bucket, part));
  }
  const std::int64_t begin = part == Part::frozen ? table.bucket_size(bucket, Part::trainable) : 0;
  return slots_[context_.slot_of(bucket)].view().flat(begin, begin + table.bucket_size(bucket, part));
}

TensorView BucketMemory::of_parameter(const Parameter& parameter) const {
  const TensorView bucket = of_bucket(parameter.bucket, parameter.part);
  const std::int64_t begin = parameter.offset - context_.table.bucket_begin(parameter.bucket, parameter.part);
  return bucket.flat(begin, begin + parameter.shape.numel()).reshape(parameter.shape);
}

TensorView BucketMemory::own_slice(int bucket, Part part) const {
  const std::int64_t begin = offsets_[index_of(part)][bucket];
  return held_[index_of(part)].view().flat(begin, begin + context_.owned(bucket, part).count());
}

TensorView BucketMemory::held(const ParameterSlice& first, const ParameterSlice& last) const {
  const Part part = context_.table[first.parameter].part;
  const auto begin_of = [&](const ParameterSlice& slice) {
    const Parameter& parameter = context_.table[slice.parameter];
    const std::int64_t begin = parameter.offset + slice.begin;
    if (!sharded_) return begin;
    const std::int64_t bucket_begin = context_.table.bucket_begin(parameter.bucket, part);
    return offsets_[index_of(part)][parameter.bucket] + begin - bucket_begin -
           context_.owned(parameter.bucket, part).begin;
  };
  return held_[index_of(part)].view().flat(begin_of(first), begin_of(last) + last.count());
}

void BucketMemory::clear() const {
  for (const Tensor& held : held_) {
    if (!held.empty()) fill(context_.stream, held, 0.0);
  }
}

}  // namespace ringtrain
