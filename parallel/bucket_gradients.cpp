#include "parallel/bucket_gradients.h"

#include <algorithm>
#include <utility>

#include "kernels/elementwise.h"

namespace ringtrain {

BucketGradients::BucketGradients(Allocator& allocator, const StoreContext& context)
    : context_(context), sharded_(context.options.shard != Shard::optimizer), has_sum_(context.table.buckets(), false) {
  if (!context.options.gradients) return;
  constexpr Part part = Part::trainable;
  const DType dtype = accumulator(context.options.dtype);
  const std::int64_t size = sharded_ ? context.offsets[index_of(part)].back() : context.table.flat_size();
  held_ = allocator.make(Tag::gradients, "gradients", dtype, {size});
  if (context.options.ranks == 1) return;
  for (const std::int64_t largest : sharded_ ? context.slot_sizes({&part, 1}) : std::vector<std::int64_t>{}) {
    const std::string name = fmt::format("gradients of a bucket {}", slots_.size());
    slots_.push_back(largest > 0 ? allocator.make(Tag::gradients, name, dtype, {largest}) : Tensor{});
  }
  if (context.options.order == SumOrder::by_rank) make_stagings(allocator);
}

/// Returns the staging in which a bucket's gradients are summed. Backward begins with the last bucket, whose staging is
/// the large one; from there on layers take turns.
std::size_t BucketGradients::staging_of(int bucket) const {
  const int last = context_.table.buckets() - 1;
  if (bucket == 0 || bucket == last) return 0;
  return (last - bucket) % 2 == 1 ? 1 : 0;
}

void BucketGradients::make_stagings(Allocator& allocator) {
  std::array<std::int64_t, 2> largest{};
  for (int bucket = 0; bucket < context_.table.buckets(); ++bucket) {
    std::int64_t& size = largest[staging_of(bucket)];
    size = std::max(size, context_.table.bucket_size(bucket, Part::trainable));
  }
  for (std::size_t at = 0; at < reductions_.size(); ++at) {
    if (largest[at] == 0) continue;
    reductions_[at].staging =
        allocator.make(Tag::workspace, fmt::format("gradient reduction {}", at), held_.view().dtype,
                       {reduce_scatter_staging(largest[at], context_.options.ranks)});
  }
}

void BucketGradients::begin_step() {
  if (!padding_is_zero_ && !sharded_) fill(context_.stream, held_, 0.0);
  padding_is_zero_ = true;
  has_sum_.assign(has_sum_.size(), false);
}

TensorView BucketGradients::of_bucket(int bucket) const {
  const ParameterTable& table = context_.table;
  if (!sharded_) return held_.view().flat(table.bucket_begin(bucket), table.bucket_end(bucket));
  return slots_[context_.slot_of(bucket)].view().flat(0, table.bucket_size(bucket, Part::trainable));
}

void BucketGradients::free_slot(int bucket) {
  if (!sharded_) return;
  for (Reduction& reduction : reductions_) {
    if (reduction.bucket != none && context_.slot_of(reduction.bucket) == context_.slot_of(bucket)) {
      finish(reduction);
    }
  }
}

/// A place held another bucket before: what pads this one's parameters is some of its gradients.
void BucketGradients::zero_padding(int bucket) {
  const TensorView flat = of_bucket(bucket);
  std::int64_t end = 0;  // of what is a gradient so far
  const auto zero_until = [&](std::int64_t begin) {
    if (end < begin) fill(context_.stream, flat.flat(end, begin), 0.0);
  };
  for (const Parameter& parameter : context_.table.all()) {
    if (parameter.bucket != bucket || parameter.part != Part::trainable) continue;
    const std::int64_t begin = parameter.offset - context_.table.bucket_begin(bucket);
    zero_until(begin);
    end = begin + parameter.shape.numel();
  }
  zero_until(flat.numel());
}

void BucketGradients::complete(int bucket, bool last) {
  if (context_.options.ranks == 1 || (!sharded_ && !last)) return;
  if (sharded_) zero_padding(bucket);
  Reduction& reduction = reductions_[staging_of(bucket)];
  if (reduction.bucket != none) finish(reduction);
  reduction.bucket = bucket;
  reduction.scatter.start(context_.ranks_for("finish"), of_bucket(bucket), reduction.staging,
                          {.operation = "gradient reduction of a bucket", .layer = bucket}, context_.options.order);
}

void BucketGradients::finish(Reduction& reduction) {
  const int bucket = std::exchange(reduction.bucket, none);
  reduction.scatter.finish(context_.stream);
  if (!sharded_) return;
  const Slice own = context_.owned(bucket, Part::trainable);
  if (own.count() == 0) return;
  const TensorView reduced = of_bucket(bucket).flat(own.begin, own.end);
  const TensorView sum = context_.own_part(held_, bucket, Part::trainable);
  if (has_sum_[bucket]) {
    add(context_.stream, sum, reduced);
  } else {
    copy_in_order(context_.stream, sum, reduced);
  }
  has_sum_[bucket] = true;
}

void BucketGradients::finish() {
  for (Reduction& reduction : reductions_) {
    if (reduction.bucket != none) finish(reduction);
  }
}

TensorView BucketGradients::sums(const ParameterSlice& first, const ParameterSlice& last) const {
  const auto begin_of = [&](const ParameterSlice& slice) {
    return sharded_ ? context_.begin_in_shard(slice) : context_.table[slice.parameter].offset + slice.begin;
  };
  return held_.view().flat(begin_of(first), begin_of(last) + last.count());
}

}  // namespace ringtrain
