#include "parallel/gradient_reduction.h"

#include <algorithm>

namespace ringtrain {

namespace {
constexpr int buffers = 2;  // buckets under way
}

GradientReduction::GradientReduction(Allocator& allocator, Communicator* world, int world_size,
                                     const Parameters& parameters, Stream& stream, SumOrder order)
    : parameters_(&parameters), stream_(&stream), size_(world_size), order_(order) {
  ensure(world ? world->size() == world_size : world_size == 1 || allocator.planning(), "the world fits world_size");
  if (size_ == 1) return;
  if (world) {
    communicator_ = world->split(0);
    communicator_->set_stream(stream);
  }
  const ParameterTable& table = parameters.table();
  std::int64_t largest = 0;
  for (int bucket = 0; bucket < table.buckets(); ++bucket) {
    largest = std::max(largest, table.bucket_end(bucket) - table.bucket_begin(bucket));
  }
  slots_.resize(buffers);
  if (order == SumOrder::by_communicator) return;
  for (std::size_t slot = 0; slot < slots_.size(); ++slot) {
    slots_[slot].staging = allocator.make(Tag::workspace, fmt::format("gradient reduction {}", slot),
                                          parameters.all_gradients().dtype, {reduce_scatter_staging(largest, size_)});
  }
}

// The communicator goes first: it takes back what an exception left under way in the buffers.
GradientReduction::~GradientReduction() {
  communicator_.reset();
}

void GradientReduction::bucket_complete(int bucket) {
  ensure(bucket >= 0 && bucket < parameters_->table().buckets(), "a bucket that exists");
  const std::int64_t issue = issued_++;
  if (size_ == 1) return;
  Slot& slot = slots_[issue % buffers];
  if (slot.reduction.pending()) slot.reduction.finish(*stream_);
  slot.reduction.start(*communicator_, parameters_->bucket_gradients(bucket), slot.staging,
                       {.operation = "gradient reduction of a bucket", .layer = bucket}, order_);
}

void GradientReduction::finish() {
  ensure(issued_ == parameters_->table().buckets(), "every bucket is reduced once a step");
  for (std::int64_t issue = issued_; issue < issued_ + std::ssize(slots_); ++issue) {  // oldest first
    Slot& slot = slots_[issue % buffers];
    if (slot.reduction.pending()) slot.reduction.finish(*stream_);
  }
  issued_ = 0;
}

Slice GradientReduction::owned(const ParameterTable& table, int bucket, int world_size, int rank) {
  return slice_of(table.bucket_end(bucket) - table.bucket_begin(bucket), world_size, rank);
}

void GradientReduction::gather_weights() {
  if (size_ == 1) return;
  for (int bucket = 0; bucket < parameters_->table().buckets(); ++bucket) {
    all_gather_slices(*communicator_, parameters_->bucket_weights(bucket),
                      {.operation = "gathering the weights of a bucket", .layer = bucket});
  }
}

}  // namespace ringtrain
