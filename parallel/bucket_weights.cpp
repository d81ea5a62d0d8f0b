#include "parallel/bucket_weights.h"

#include <algorithm>

#include "kernels/elementwise.h"

namespace ringtrain {

namespace {

void finish(std::span<AllGather> gathers) {
  for (AllGather& gather : gathers) {
    if (gather.pending()) gather.finish();
  }
}

}  // namespace

BucketWeights::BucketWeights(Allocator& allocator, const StoreContext& context)
    : context_(context), sharded_(context.options.shard == Shard::weights) {
  const DType dtype = context.options.dtype;
  for (const Part part : both_parts) {
    const std::int64_t size = sharded_ ? context.offsets[index_of(part)].back() : context.table.flat_size(part);
    const char* const name = part == Part::frozen ? "frozen weights" : "weights";
    if (size > 0) held_[index_of(part)] = allocator.make(Tag::weights, name, dtype, {size});
  }
  if (!sharded_) {
    slots_.resize(context.table.buckets());
    for (std::size_t bucket = 0; bucket < slots_.size(); ++bucket) slots_[bucket].bucket = static_cast<int>(bucket);
    return;
  }
  for (const std::int64_t size : context.slot_sizes(both_parts)) {
    const std::string name = fmt::format("gathered weights {}", slots_.size());
    Slot& slot = slots_.emplace_back();
    if (size > 0) slot.memory = allocator.make(Tag::weights, name, dtype, {size});
  }
}

TensorView BucketWeights::of_bucket(int bucket, Part part) const {
  const ParameterTable& table = context_.table;
  if (!sharded_) {
    return held_[index_of(part)].view().flat(table.bucket_begin(bucket, part), table.bucket_end(bucket, part));
  }
  const std::int64_t begin = part == Part::frozen ? table.bucket_size(bucket, Part::trainable) : 0;
  return slots_[slot_of(bucket)].memory.view().flat(begin, begin + table.bucket_size(bucket, part));
}

void BucketWeights::prefetch(int bucket) {
  context_.check_bucket("prefetch", bucket);
  Slot& slot = slots_[slot_of(bucket)];
  if (slot.bucket == bucket) return;
  if (slot.users != 0) {
    fail(ExitCode::usage,
         "acquire: bucket {} needs the buffer of bucket {}, which is not released; a layer keeps its weights only "
         "during its forward or backward",
         bucket, slot.bucket);
  }
  finish(slot.gathers);  // of a bucket that was never taken
  Communicator& ranks = context_.ranks_for("acquire");
  slot.bucket = bucket;
  for (const Part part : both_parts) {
    if (context_.table.bucket_size(bucket, part) == 0 || (part == Part::frozen && !sharded_)) continue;
    const TensorView gathered = of_bucket(bucket, part);
    if (const Slice own = context_.owned(bucket, part); sharded_ && own.count() > 0) {
      copy_in_order(context_.stream, gathered.flat(own.begin, own.end),
                    context_.own_part(held_[index_of(part)], bucket, part));
    }
    slot.gathers[index_of(part)].start(ranks, gathered,
                                       {.operation = "gathering the weights of a bucket", .layer = bucket});
  }
}

void BucketWeights::acquire(int bucket) {
  prefetch(bucket);
  Slot& slot = slots_[slot_of(bucket)];
  finish(slot.gathers);
  if (sharded_) ++slot.users;
}

void BucketWeights::release(int bucket) {
  context_.check_bucket("release", bucket);
  if (!sharded_) return;
  Slot& slot = slots_[slot_of(bucket)];
  if (slot.bucket != bucket || slot.users == 0) {
    fail(ExitCode::usage, "release: bucket {} is not acquired; each acquire has one release", bucket);
  }
  --slot.users;
}

TensorView BucketWeights::weight(const Parameter& parameter) const {
  const Slot& slot = slots_[slot_of(parameter.bucket)];
  const bool here = slot.bucket == parameter.bucket && std::ranges::none_of(slot.gathers, &AllGather::pending);
  if (!sharded_ && !here) [[unlikely]] {
    fail(ExitCode::usage,
         "weight: {} is read before its bucket {} was gathered from the ranks that changed it; hold a WeightsGuard of "
         "that bucket",
         parameter.name, parameter.bucket);
  }
  if (sharded_ && (!here || slot.users == 0)) [[unlikely]] {
    fail(ExitCode::usage,
         "weight: {} is read while its bucket {} is not acquired, so its buffer may have another bucket; keep a "
         "WeightsGuard of that bucket",
         parameter.name, parameter.bucket);
  }
  const std::int64_t begin = parameter.offset - context_.table.bucket_begin(parameter.bucket, parameter.part);
  return of_bucket(parameter.bucket, parameter.part)
      .flat(begin, begin + parameter.shape.numel())
      .reshape(parameter.shape);
}

void BucketWeights::changed() {
  if (!sharded_) context_.ranks_for("weights_changed");
  for (int bucket = 0; bucket < context_.table.buckets(); ++bucket) {
    Slot& slot = slots_[slot_of(bucket)];
    if (slot.users != 0) {
      fail(ExitCode::usage, "weights_changed: bucket {} is not released; weights change while no layer uses them",
           slot.bucket);
    }
    finish(slot.gathers);  // of a bucket that was never taken
    if (sharded_ || context_.table.bucket_size(bucket, Part::trainable) > 0) slot.bucket = none;
  }
}

void BucketWeights::gather_changed() {
  for (int bucket = 0; !sharded_ && bucket < context_.table.buckets(); ++bucket) acquire(bucket);
}

TensorView BucketWeights::held(const ParameterSlice& slice) const {
  const Parameter& parameter = context_.table[slice.parameter];
  const std::int64_t begin = sharded_ ? context_.begin_in_shard(slice) : parameter.offset + slice.begin;
  return held_[index_of(parameter.part)].view().flat(begin, begin + slice.count());
}

void BucketWeights::clear() {
  for (const Tensor& weights : held_) {
    if (!weights.empty()) fill(context_.stream, weights, 0);
  }
}

}  // namespace ringtrain
