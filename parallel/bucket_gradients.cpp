#include <algorithm>

#include "kernels/elementwise.h"
#include "parallel/store_buckets.h"

namespace ringtrain {

namespace {

constexpr Part trainable = Part::trainable;

}  // namespace

BucketGradients::BucketGradients(Allocator& allocator, const StoreContext& context)
    : context_(context),
      memory_(allocator, context, Tag::gradients, accumulator(context.options.dtype),
              context.options.narrow_gradients ? DType::bfloat16 : accumulator(context.options.dtype),
              std::span(&trainable, context.options.gradients ? 1 : 0), context.shards_gradients(),
              "gradients of a bucket"),
      has_sum_(context.table.buckets(), false) {
  const StoreOptions& options = context.options;
  if (!options.gradients || options.ranks == 1 || options.order != SumOrder::by_rank) return;
  std::array<std::int64_t, 2> largest{};
  for (int bucket = 0; bucket < context.table.buckets(); ++bucket) {
    std::int64_t& size = largest[staging_of(bucket)];
    size = std::max(size, context.table.bucket_size(bucket, trainable));
  }
  for (std::size_t at = 0; at < reductions_.size(); ++at) {
    if (largest[at] == 0) continue;
    reductions_[at].staging =
        allocator.make(Tag::workspace, fmt::format("gradient reduction {}", at), accumulator(options.dtype),
                       {reduce_scatter_staging(largest[at], options.ranks)});
  }
}

/// Returns the staging in which a bucket's gradients are summed. Backward begins with the last bucket, whose staging is
/// the large one; from there on, layers alternate.
std::size_t BucketGradients::staging_of(int bucket) const {
  const int last = context_.table.buckets() - 1;
  if (bucket == 0 || bucket == last) return 0;
  return (last - bucket) % 2 == 1 ? 1 : 0;
}

void BucketGradients::begin_step() {
  if (!padding_is_zero_ && !memory_.sharded()) memory_.clear();
  padding_is_zero_ = true;
  has_sum_.assign(has_sum_.size(), false);
}

void BucketGradients::free_slot(int bucket) {
  if (!memory_.sharded()) return;
  for (Reduction& reduction : reductions_) {
    if (context_.slot_of(reduction.bucket) == context_.slot_of(bucket)) finish(reduction);
  }
}

/// The buffer held another bucket before, so padding of this bucket's parameters may contain gradients.
void BucketGradients::zero_padding(int bucket) {
  const TensorView flat = memory_.of_bucket(bucket, trainable);
  std::int64_t end = 0;  // of the gradients so far
  const auto zero_until = [&](std::int64_t begin) {
    if (end < begin) fill(context_.stream, flat.flat(end, begin), 0.0);
  };
  for (const Parameter& parameter : context_.table.all()) {
    if (parameter.bucket != bucket || parameter.part != trainable) continue;
    const std::int64_t begin = parameter.offset - context_.table.bucket_begin(bucket);
    zero_until(begin);
    end = begin + parameter.shape.numel();
  }
  zero_until(flat.numel());
}

void BucketGradients::complete(int bucket, bool last) {
  if (memory_.sharded()) {
    zero_padding(bucket);
    if (context_.options.ranks == 1) return add_to_sum(bucket);
  } else if (context_.options.ranks == 1 || !last) {
    return;
  }
  Reduction& reduction = reductions_[staging_of(bucket)];
  finish(reduction);
  reduction.bucket = bucket;
  reduction.scatter.start(context_.ranks_for("finish"), memory_.of_bucket(bucket, trainable), reduction.staging,
                          {.operation = "gradient reduction of a bucket", .layer = bucket}, context_.options.order);
}

void BucketGradients::finish(Reduction& reduction) {
  if (!reduction.scatter.pending()) return;
  reduction.scatter.finish(context_.stream);
  if (memory_.sharded()) add_to_sum(reduction.bucket);
}

void BucketGradients::add_to_sum(int bucket) {
  const Slice slice = context_.owned(bucket, trainable);
  if (slice.count() == 0) return;
  const TensorView reduced = memory_.of_bucket(bucket, trainable).flat(slice.begin, slice.end);
  const TensorView sum = memory_.own_slice(bucket, trainable);
  if (has_sum_[bucket]) {
    add(context_.stream, sum, reduced);
  } else {
    convert(context_.stream, sum, reduced);
  }
  has_sum_[bucket] = true;
}

void BucketGradients::finish() {
  for (Reduction& reduction : reductions_) finish(reduction);
}

}  // namespace ringtrain
