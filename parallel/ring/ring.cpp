#include "parallel/ring/ring.h"

#include <exception>

#include "framework/profile/trace.h"
#include "parallel/ring/ring_pass.h"

namespace ringtrain {

namespace {

std::int64_t min_part(const RingCapacity& capacity, Device device) {
  return capacity.min_part > 0 ? capacity.min_part : default_min_part(device, capacity.G);
}

}  // namespace

Ring::Ring(Allocator& allocator, Communicator* sequence_group, int ring_size, const RingCapacity& capacity)
    : buffers_(allocator, capacity, ring_size),
      batch_(ring_size, sequence_group ? sequence_group->rank() : 0, min_part(capacity, allocator.device())),
      times_(ring_size) {
  ensure(sequence_group ? sequence_group->size() == ring_size : ring_size == 1 || allocator.planning(),
         "the ring's communicator fits ring_size");
  if (ring_size == 1 || !sequence_group) return;
  key_ranks_ = sequence_group->split(0);
  gradient_ranks_ = sequence_group->split(0);
}

void Ring::begin(const AttentionMask& mask, std::span<const ShardExtents> extents,
                 std::span<const SegmentList> segments, std::int64_t sequences,
                 std::span<const DocumentStarts> documents) {
  ensure(batch_.size() == 1 || key_ranks_, "a ring that was only planned does not run");
  times_.read_some();
  batch_.begin(mask, extents, segments, sequences, documents);
  ensure(batch_.size() == 1 || sequences * batch_.longest() <= buffers_.capacity().tokens,
         "a micro-batch within the ring's capacity");
}

void Ring::forward(Stream& stream, int layer, const TensorView& kv, const TensorView& documents,
                   const Visitor& visitor) {
  pass(stream, layer, {.kv = kv, .documents = documents, .dkv = {}, .backward = false}, visitor, {});
}

void Ring::backward(Stream& stream, int layer, const TensorView& kv, const TensorView& documents, const TensorView& dkv,
                    const Visitor& visitor, const std::function<void()>& overlap) {
  const RingCapacity& capacity = buffers_.capacity();
  ensure(batch_.size() == 1 || (capacity.backward && batch_.sequences() * batch_.longest() <= capacity.gradient_tokens),
         "a micro-batch within the ring's gradient buffers");
  pass(stream, layer, {.kv = kv, .documents = documents, .dkv = dkv, .backward = true}, visitor, overlap);
}

/// A pass that fails ends all ranks before the caller can free what they are reading.
void Ring::pass(Stream& stream, int layer, const RingTensors& own, const Visitor& visitor,
                const std::function<void()>& overlap) {
  ensure(batch_.begun(), "Ring::begin comes before the first pass");
  const Span span(stream.trace(), own.backward ? "ring backward" : "ring forward", {{"layer", layer}});
  try {
    RingPass(stream, layer, {key_ranks_.get(), gradient_ranks_.get(), buffers_, batch_, times_}, own)
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
