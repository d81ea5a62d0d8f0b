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
    communicator_->order_with(stream);
  }
  const ParameterTable& table = parameters.table();
  std::int64_t largest = 0;
  for (int group = 0; group < table.groups(); ++group) {
    largest = std::max(largest, table.group_end(group) - table.group_begin(group));
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

void GradientReduction::group_complete(int group) {
  ensure(group >= 0 && group < parameters_->table().groups(), "a group that exists");
  const std::int64_t bucket = issued_++;
  if (size_ == 1) return;
  Slot& slot = slots_[static_cast<std::size_t>(bucket % buffers)];
  if (slot.reduction.pending()) slot.reduction.finish(*stream_);
  slot.reduction.start(*communicator_, parameters_->group_gradients(group), slot.staging,
                       {.operation = "gradient reduction of a parameter group", .layer = group}, order_);
}

void GradientReduction::finish() {
  ensure(issued_ == parameters_->table().groups(), "every group is reduced once a step");
  for (std::int64_t bucket = issued_; bucket < issued_ + std::ssize(slots_); ++bucket) {  // oldest first
    Slot& slot = slots_[static_cast<std::size_t>(bucket % buffers)];
    if (slot.reduction.pending()) slot.reduction.finish(*stream_);
  }
  issued_ = 0;
}

Slice GradientReduction::owned(const ParameterTable& table, int group, int world_size, int rank) {
  return slice_of(table.group_end(group) - table.group_begin(group), world_size, rank);
}

void GradientReduction::gather_weights() {
  if (size_ == 1) return;
  for (int group = 0; group < parameters_->table().groups(); ++group) {
    all_gather_slices(*communicator_, parameters_->group_weights(group),
                      {.operation = "gathering the weights of a parameter group", .layer = group});
  }
}

}  // namespace ringtrain
