#include "parallel/ring/ring_batch.h"

#include <algorithm>
#include <limits>

#include "framework/error.h"
#include "parallel/ring/ring_load.h"

namespace ringtrain {

void RingBatch::begin(const AttentionMask& mask, std::span<const ShardExtents> extents,
                      std::span<const SegmentList> segments, std::int64_t sequences,
                      std::span<const DocumentStarts> documents) {
  constexpr std::int64_t whole = std::numeric_limits<std::int64_t>::max();  // a block is one part
  const auto N = static_cast<std::size_t>(size_);
  ensure(extents.size() == N && segments.size() == N, "the shards of all ring ranks");
  sequences_ = sequences;
  mask_ = mask;
  segments_.assign(segments.begin(), segments.end());
  documents_.assign(documents.begin(), documents.end());
  tokens_.clear();
  for (const SegmentList& list : segments_) tokens_.push_back(token_count(list));
  const auto largest = std::max_element(tokens_.begin(), tokens_.end()) - tokens_.begin();
  parts_ = ring_parts(segments_[largest], sequences, N == 1 ? whole : min_part_);
  pairs_.assign(N, {});

  plan_ = ring_plan(ring_needs(mask, extents), size_, rank_);
  rounds_.assign(N + 1, {});
  for (const RingStep& step : plan_.steps) rounds_[step.hop].step = &step;
  for (const RingDelivery& delivery : plan_.deliveries) {
    rounds_[delivery.hop].delivery = &delivery;
  }
  for (const RingReturn& back : plan_.returns) rounds_[back.hop].returned = &back;
}

std::int64_t RingBatch::longest() const {
  return *std::max_element(tokens_.begin(), tokens_.end());
}

SegmentList RingBatch::segments_of_part(int owner, std::size_t part) const {
  const RingPart own = part_of_block(owner, part);
  return segments_of_range(segments_of(owner), own.first_token, own.first_token + own.tokens);
}

std::span<const std::int64_t> RingBatch::pairs_of(const RingStep& step) {
  std::vector<std::int64_t>& known = pairs_[step.hop];
  for (std::size_t i = known.size(); i < parts_.size(); ++i) {
    const RingPart part = part_of_block(step.owner, i);
    const std::span<const DocumentStarts> all(documents_);
    const auto own = all.empty() ? all : all.subspan(part.first_sequence, static_cast<std::size_t>(part.sequences));
    known.push_back(visible_pairs(mask_, segments_of(rank_), segments_of_part(step.owner, i), part.sequences, own));
  }
  return known;
}

}  // namespace ringtrain
