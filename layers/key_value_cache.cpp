#include "layers/key_value_cache.h"

#include <fmt/core.h>

#include <algorithm>

#include "framework/profile/trace.h"
#include "kernels/elementwise.h"
#include "parallel/collectives.h"
#include "parallel/ring/ring_parts.h"

namespace ringtrain {

KeyValueCache::KeyValueCache(Allocator& allocator, const ModelSpec& spec, DType dtype, std::int64_t capacity,
                             int ring_size, Communicator* ring)
    : shape_(attention_shape(spec, /*layer=*/0)), capacity_(capacity), ring_size_(ring_size), ring_(ring) {
  for (std::int64_t layer = 0; layer < spec.num_hidden_layers(); ++layer) {
    const AttentionMask& mask = spec.layers[layer].mask;
    const std::int64_t slots = mask.window > 0 ? std::min(capacity, mask.window) : capacity;
    layers_.push_back({mask, allocator.make(Tag::activations, fmt::format("layer {} key and value cache", layer), dtype,
                                            {2, slots, shape_.G, shape_.D})});
  }
  const DType sums = accumulator(dtype);
  states_ = allocator.make(Tag::workspace, "decode attention states", sums, {ring_size + 1, shape_.H * (shape_.D + 2)});
  workspace_ = allocator.make(Tag::workspace, "decode attention workspace", sums,
                              {decode_attention_workspace(shape_, capacity)});
}

std::int64_t KeyValueCache::capacity_of(std::int64_t prompt, std::int64_t new_tokens, int ring_size) {
  return prompt + (new_tokens + ring_size - 1) / ring_size;
}

void KeyValueCache::begin(const SegmentList& segments) {
  segments_ = segments;
  count_ = token_count(segments);
  new_tokens_ = 0;
  ensure(count_ <= capacity_, "the prompt's tokens fit into the cache");
}

template <class Body>
void KeyValueCache::for_runs(const Layer& layer, std::int64_t first, std::int64_t end, const Body& body) {
  while (first < end) {
    const std::int64_t run = std::min(end - first, layer.slots() - first % layer.slots());
    body(first, run);
    first += run;
  }
}

void KeyValueCache::store(Stream& stream, int layer, const ConstTensorView& key_value) {
  const Layer& cache = layers_[static_cast<std::size_t>(layer)];
  for (int half = 0; half < 2; ++half) {
    const ConstTensorView all = key_value.rows(half, half + 1).reshape({count_, shape_.G, shape_.D});
    for_runs(cache, count_ - std::min(count_, cache.slots()), count_, [&](std::int64_t first, std::int64_t count) {
      copy(stream, slots(cache, half, first % cache.slots(), count), all.rows(first, first + count));
    });
  }
}

void KeyValueCache::begin_token(std::int64_t position) {
  position_ = position;
  owned_ = new_tokens_ % ring_size_ == ring_->rank();
  if (owned_) {
    // The new tokens of a rank are one affine segment; it may also continue a prompt's single token.
    const bool continues = new_tokens_ >= ring_size_;
    if (continues) {
      ++segments_.back().count;
    } else {
      segments_.push_back({position, ring_size_, 1});
    }
    ++count_;
    ensure(count_ <= capacity_, "a new token fits into the cache");
  }
  ++new_tokens_;
}

TensorView KeyValueCache::slots(const Layer& layer, int half, std::int64_t first, std::int64_t count) const {
  const std::int64_t row = shape_.G * shape_.D, begin = (half * layer.slots() + first) * row;
  return layer.tokens.view().flat(begin, begin + count * row).reshape({count, shape_.G, shape_.D});
}

AttentionState KeyValueCache::state_of(int rank) const {
  const std::int64_t H = shape_.H, outputs = H * shape_.D;
  const TensorView row = states_.view().rows(rank, rank + 1).flat();
  return {.o = row.flat(0, outputs).reshape({1, 1, H, shape_.D}),
          .m = row.flat(outputs, outputs + H).reshape({1, H, 1}),
          .l = row.flat(outputs + H, outputs + 2 * H).reshape({1, H, 1})};
}

void KeyValueCache::attend(Stream& stream, int layer, const ConstTensorView& query, const ConstTensorView& key_value,
                           const ConstTensorView& sinks, const TensorView& out) {
  const Span span(stream.trace(), "decode attention");
  const Layer& cache = layers_[static_cast<std::size_t>(layer)];
  const Shape token_shape{1, shape_.G, shape_.D};
  if (owned_) {
    const std::int64_t newest = (count_ - 1) % cache.slots();
    copy(stream, slots(cache, 0, newest, 1), key_value.rows(0, 1).reshape(token_shape));
    copy(stream, slots(cache, 1, newest, 1), key_value.rows(1, 2).reshape(token_shape));
  }
  const AttentionState state = state_of(ring_->rank()), second = state_of(ring_size_);
  const auto meet = [&](std::int64_t first, std::int64_t count, const AttentionState& into) {
    const std::int64_t slot = count == 0 ? 0 : first % cache.slots();
    decode_attention(stream, shape_, query.reshape({shape_.H, shape_.D}), slots(cache, 0, slot, count),
                     slots(cache, 1, slot, count), into, workspace_);
  };
  const std::int64_t first = tokens_before(segments_, keys_seen_by(cache.mask, {position_, position_}).first);
  int runs = 0;
  for_runs(cache, first, count_,
           [&](std::int64_t begin, std::int64_t count) { meet(begin, count, runs++ == 0 ? state : second); });
  if (runs == 0) meet(0, 0, state);
  if (runs == 2) combine_attention(stream, state, second);
  if (ring_size_ > 1) {
    all_gather_slices(*ring_, states_.view().rows(0, ring_size_), {"combine attention", layer});
  }
  for (int width = 1; width < ring_size_; width *= 2) {
    for (int rank = 0; rank + width < ring_size_; rank += 2 * width) {
      combine_attention(stream, state_of(rank), state_of(rank + width));
    }
  }
  const AttentionState all = state_of(0);
  attention_finalize(stream, all, out.reshape({1, 1, shape_.H, shape_.D}), all.m, sinks);
}

}  // namespace ringtrain
