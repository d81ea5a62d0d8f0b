#include "parallel/ring/ring.h"

#include <fmt/format.h>

#include <exception>
#include <utility>

#include "framework/checks/argument_check.h"
#include "framework/profile/trace.h"
#include "kernels/kept_free.h"
#include "parallel/ring/ring_pass.h"

namespace ringtrain {

namespace {

/// Refuses a ring whose ranks differ from those of its communicator; returns its size.
int checked_size(const Allocator& allocator, const Communicator* ranks, int size, const CallerLine& line) {
  if (size < 1) refuse_call(line, fmt::format("a ring cannot have {} ranks; it needs one or more", size));
  if (ranks != nullptr && ranks->size() != size) {
    refuse_call(line, fmt::format("the ring has {} ranks; the communicator has {}", size, ranks->size()));
  }
  if (ranks == nullptr && size > 1 && !allocator.planning()) {
    refuse_call(line, fmt::format("a ring of {} ranks has no communicator, which only a plan may omit", size));
  }
  return size;
}

}  // namespace

Ring::Ring(Allocator& allocator, Communicator* sequence_group, int ring_size, const RingCapacity& capacity,
           const CallerLine& line)
    : size_(checked_size(allocator, sequence_group, ring_size, line)),
      rank_(sequence_group ? sequence_group->rank() : 0),
      device_(allocator.device()),
      min_part_(capacity.min_part > 0 ? capacity.min_part : default_min_part(allocator.device(), capacity.G)),
      buffers_(allocator, capacity, ring_size),
      times_(ring_size) {
  if (ring_size == 1 || !sequence_group) return;
  key_ranks_ = sequence_group->split(0);
  gradient_ranks_ = sequence_group->split(0);
}

void Ring::check_capacity(std::int64_t tokens, const char* field, const CallerLine& line) const {
  const std::int64_t sequences = batches_[0].sequences(), longest = batches_[0].longest();
  if (size_ == 1 || sequences * longest <= tokens) return;
  refuse_call(line, fmt::format("a micro-batch of {} sequences, of {} tokens on the rank that has the most, needs "
                                "RingCapacity::{} = {} or more, but the ring was made for {}",
                                sequences, longest, field, sequences * longest, tokens));
}

void Ring::check_pass(const RingCall& call, const RingTensors& tensors, const RingVisitor& visitor,
                      const CallerLine& line) const {
  if (call.schedule < 0 || std::cmp_greater_equal(call.schedule, batches_.size())) {
    refuse_call(line, fmt::format("there is no schedule {}: Ring::begin has set {}, numbered from 0, one for each mask",
                                  call.schedule, batches_.size()));
  }
  require_call(static_cast<bool>(visitor), "visitor must be a function, not empty", line);
  const RingBatch& batch = batches_[static_cast<std::size_t>(call.schedule)];
  const RingCapacity& capacity = buffers_.capacity();
  const std::int64_t B = batch.sequences(), T = batch.tokens_of(rank_);
  const auto check_pair = [&](const TensorView& x, const char* name, DType dtype) {
    require_argument(x, name, {{"2", 2}, {"B", B}, {"T", T}, {"G", capacity.G}, {"D", capacity.D}}, dtype, device_,
                     line);
  };
  check_pair(tensors.kv, "kv", capacity.dtype);
  if (!tensors.documents.empty()) {
    require_argument(tensors.documents, "documents", {{"B", B}, {"T", T}}, DType::int32, device_, line);
    require_call(size_ == 1 || capacity.documents, "documents need a ring that was made with RingCapacity::documents",
                 line);
  }
  if (!tensors.backward) return;
  require_call(size_ == 1 || capacity.backward,
               "a backward pass needs a ring that was made with RingCapacity::backward", line);
  check_capacity(capacity.gradient_tokens, "gradient_tokens", line);
  check_pair(tensors.dkv, "dkv", accumulator(capacity.dtype));
}

void Ring::begin(std::span<const AttentionMask> masks, std::span<const ShardExtents> extents,
                 std::span<const SegmentList> segments, std::int64_t sequences,
                 std::span<const DocumentStarts> documents, const CallerLine& line) {
  require_call(size_ == 1 || key_ranks_, "a ring without a communicator is only a plan and cannot run", line);
  require_call(!masks.empty(), "masks must not be empty", line);
  if (std::cmp_not_equal(extents.size(), size_) || std::cmp_not_equal(segments.size(), size_)) {
    refuse_call(line, fmt::format("extents has size {}, segments has {}, but both must have the ring's size, {}",
                                  extents.size(), segments.size(), size_));
  }
  for (std::size_t rank = 0; rank < extents.size(); ++rank) {
    if (std::cmp_equal(extents[rank].size(), sequences)) continue;
    refuse_call(line, fmt::format("extents[{}] has size {}, but must have the number of sequences, {}", rank,
                                  extents[rank].size(), sequences));
  }
  if (!documents.empty() && std::cmp_not_equal(documents.size(), sequences)) {
    refuse_call(line, fmt::format("documents has size {}, but must be empty or have one entry for each of {} sequences",
                                  documents.size(), sequences));
  }
  times_.read_some();
  batches_.resize(masks.size(), RingBatch(size_, rank_, min_part_));
  for (std::size_t i = 0; i < masks.size(); ++i) {
    batches_[i].begin(masks[i], extents, segments, sequences, documents);
  }
  check_capacity(buffers_.capacity().tokens, "tokens", line);
}

void Ring::forward(Stream& stream, const RingCall& call, const TensorView& kv, const TensorView& documents,
                   const RingVisitor& visitor, const CallerLine& line) {
  pass(stream, call, {.kv = kv, .documents = documents, .dkv = {}, .backward = false}, visitor, {}, line);
}

void Ring::backward(Stream& stream, const RingCall& call, const TensorView& kv, const TensorView& documents,
                    const TensorView& dkv, const RingVisitor& visitor, const std::function<void()>& overlap,
                    const CallerLine& line) {
  pass(stream, call, {.kv = kv, .documents = documents, .dkv = dkv, .backward = true}, visitor, overlap, line);
}

/// If a pass fails, ends all ranks before the caller can free the memory that they read.
void Ring::pass(Stream& stream, const RingCall& call, const RingTensors& tensors, const RingVisitor& visitor,
                const std::function<void()>& overlap, const CallerLine& line) {
  check_pass(call, tensors, visitor, line);
  const Span span(stream.trace(), tensors.backward ? "ring backward" : "ring forward", {{"layer", call.layer}});
  RingBatch& batch = batches_[static_cast<std::size_t>(call.schedule)];
  const KeptFree kept_free(key_ranks_ ? key_ranks_->multiprocessors() : 0);
  try {
    run_ring_pass(stream, call.layer, {key_ranks_.get(), gradient_ranks_.get(), buffers_, batch, times_}, tensors,
                  visitor, overlap);
  } catch (const std::exception& error) {
    const auto* const known = dynamic_cast<const Error*>(&error);
    if (key_ranks_) key_ranks_->abort(known ? *known : Error(ExitCode::internal, error.what()));
    throw;
  }
}

}  // namespace ringtrain
