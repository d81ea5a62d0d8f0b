#include "parallel/ring/ring.h"

#include <exception>
#include <utility>

#include "framework/profile/trace.h"
#include "kernels/kept_free.h"
#include "parallel/ring/ring_pass.h"

namespace ringtrain {

namespace {

std::int64_t min_part(const RingCapacity& capacity, Device device) {
  return capacity.min_part > 0 ? capacity.min_part : default_min_part(device, capacity.G);
}

}  // namespace

Ring::Ring(Allocator& allocator, Communicator* sequence_group, int ring_size, const RingCapacity& capacity)
    : size_(ring_size),
      rank_(sequence_group ? sequence_group->rank() : 0),
      min_part_(min_part(capacity, allocator.device())),
      buffers_(allocator, capacity, ring_size),
      times_(ring_size) {
  ensure(sequence_group ? sequence_group->size() == ring_size : ring_size == 1 || allocator.planning(),
         "the ring's communicator fits ring_size");
  if (ring_size == 1 || !sequence_group) return;
  key_ranks_ = sequence_group->split(0);
  gradient_ranks_ = sequence_group->split(0);
}

bool Ring::fits(std::int64_t tokens) const {
  return size_ == 1 || batches_[0].sequences() * batches_[0].longest() <= tokens;
}

void Ring::begin(std::span<const AttentionMask> masks, std::span<const ShardExtents> extents,
                 std::span<const SegmentList> segments, std::int64_t sequences,
                 std::span<const DocumentStarts> documents) {
  ensure(size_ == 1 || key_ranks_, "a ring that was only planned does not run");
  ensure(!masks.empty(), "a micro-batch has a mask");
  times_.read_some();
  batches_.resize(masks.size(), RingBatch(size_, rank_, min_part_));
  for (std::size_t i = 0; i < masks.size(); ++i) {
    batches_[i].begin(masks[i], extents, segments, sequences, documents);
  }
  ensure(fits(buffers_.capacity().tokens), "a micro-batch within the ring's capacity");
}

void Ring::forward(Stream& stream, const RingCall& call, const TensorView& kv, const TensorView& documents,
                   const Visitor& visitor) {
  pass(stream, call, {.kv = kv, .documents = documents, .dkv = {}, .backward = false}, visitor, {});
}

void Ring::backward(Stream& stream, const RingCall& call, const TensorView& kv, const TensorView& documents,
                    const TensorView& dkv, const Visitor& visitor, const std::function<void()>& overlap) {
  const RingCapacity& capacity = buffers_.capacity();
  ensure(batches_.empty() || size_ == 1 || (capacity.backward && fits(capacity.gradient_tokens)),
         "a micro-batch within the ring's gradient buffers");
  pass(stream, call, {.kv = kv, .documents = documents, .dkv = dkv, .backward = true}, visitor, overlap);
}

/// A pass that fails ends all ranks before the caller can free what they are reading.
void Ring::pass(Stream& stream, const RingCall& call, const RingTensors& own, const Visitor& visitor,
                const std::function<void()>& overlap) {
  ensure(std::cmp_less(call.schedule, batches_.size()), "Ring::begin comes before the first pass of a schedule");
  const Span span(stream.trace(), own.backward ? "ring backward" : "ring forward", {{"layer", call.layer}});
  RingBatch& batch = batches_[static_cast<std::size_t>(call.schedule)];
  const KeptFree beside_messages(key_ranks_ ? key_ranks_->multiprocessors() : 0);
  try {
    RingPass(stream, call.layer, {key_ranks_.get(), gradient_ranks_.get(), buffers_, batch, times_}, own)
        .run(visitor, overlap);
  } catch (const Error& error) {
    if (key_ranks_) key_ranks_->abort(error);
    throw;
  } catch (const std::exception& error) {
    if (key_ranks_) key_ranks_->abort(Error(ExitCode::internal, error.what()));
    throw;
  }
}

}  // namespace ringtrain
