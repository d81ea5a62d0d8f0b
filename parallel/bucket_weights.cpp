#include <algorithm>

#include "kernels/elementwise.h"
#include "parallel/store_buckets.h"

namespace ringtrain {

namespace {

void finish(std::span<AllGather> gathers) {
  for (AllGather& gather : gathers) {
    if (gather.pending()) gather.finish();
  }
}

}  // namespace

BucketWeights::BucketWeights(Allocator& allocator, const StoreContext& context)
    : context_(context),
      memory_(allocator, context, Tag::weights, context.options.dtype,
              context.options.master_weights ? accumulator(context.options.dtype) : context.options.dtype, both_parts,
              context.shards_weights(), "gathered weights"),
      slots_(memory_.sharded() ? StoreContext::slots : context.table.buckets()) {
  if (memory_.sharded()) return;
  for (std::size_t bucket = 0; bucket < slots_.size(); ++bucket) slots_[bucket].bucket = static_cast<int>(bucket);
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
  finish(slot.gathers);  // of a bucket that was never used
  Communicator* const ranks = context_.options.ranks > 1 ? &context_.ranks_for("acquire") : nullptr;
  slot.bucket = bucket;
  for (const Part part : both_parts) {
    if (context_.table.bucket_size(bucket, part) == 0 || (part == Part::frozen && !memory_.sharded())) continue;
    const TensorView gathered = memory_.of_bucket(bucket, part);
    if (const Slice slice = context_.owned(bucket, part); memory_.sharded() && slice.count() > 0) {
      convert(context_.stream, gathered.flat(slice.begin, slice.end), memory_.own_slice(bucket, part));
    }
    if (ranks == nullptr) continue;
    slot.gathers[index_of(part)].start(*ranks, gathered,
                                       {.operation = "gathering the weights of a bucket", .layer = bucket});
  }
}

void BucketWeights::acquire(int bucket) {
  prefetch(bucket);
  Slot& slot = slots_[slot_of(bucket)];
  finish(slot.gathers);
  if (memory_.sharded()) ++slot.users;
}

void BucketWeights::release(int bucket) {
  context_.check_bucket("release", bucket);
  if (!memory_.sharded()) return;
  Slot& slot = slots_[slot_of(bucket)];
  if (slot.bucket != bucket || slot.users == 0) {
    fail(ExitCode::usage, "release: bucket {} is not acquired; each acquire has one release", bucket);
  }
  --slot.users;
}

TensorView BucketWeights::weight(const Parameter& parameter) const {
  const Slot& slot = slots_[slot_of(parameter.bucket)];
  const bool here = slot.bucket == parameter.bucket && std::ranges::none_of(slot.gathers, &AllGather::pending);
  if (!memory_.sharded() && !here) [[unlikely]] {
    fail(ExitCode::usage,
         "weight: {} is read before its bucket {} was gathered from the ranks that changed it; hold a WeightsGuard of "
         "that bucket",
         parameter.name, parameter.bucket);
  }
  if (memory_.sharded() && (!here || slot.users == 0)) [[unlikely]] {
    fail(ExitCode::usage,
         "weight: {} is read while its bucket {} is not acquired, so its buffer may have another bucket; keep a "
         "WeightsGuard of that bucket",
         parameter.name, parameter.bucket);
  }
  return memory_.of_parameter(parameter);
}

void BucketWeights::changed() {
  if (!memory_.sharded()) context_.ranks_for("weights_changed");
  for (int bucket = 0; bucket < context_.table.buckets(); ++bucket) {
    Slot& slot = slots_[slot_of(bucket)];
    if (slot.users != 0) {
      fail(ExitCode::usage, "weights_changed: bucket {} is not released; weights change while no layer uses them",
           slot.bucket);
    }
    finish(slot.gathers);  // of a bucket that was never used
    if (memory_.sharded() || context_.table.bucket_size(bucket, Part::trainable) > 0) slot.bucket = none;
  }
}

void BucketWeights::gather_changed() {
  for (int bucket = 0; !memory_.sharded() && bucket < context_.table.buckets(); ++bucket) acquire(bucket);
}

}  // namespace ringtrain
