#include "parallel/ring/ring_batch.h"

#include <limits>

#include "framework/error.h"
#include "parallel/ring/ring_load.h"

namespace ringtrain {

void RingBatch::begin(const AttentionMask& mask, std::span<const ShardExtents> extents,
                      std::span<const SegmentList> segments, std::int64_t sequences,
                      std::span<const DocumentStarts> documents) {
  constexpr std::int64_t any = std::numeric_limits<std::int64_t>::max();  // a block is one part
  const auto N = static_cast<std::size_t>(size_);
  ensure(extents.size() == N && segments.size() == N, "the shards of all ring ranks");
  sequences_ = sequences;
  mask_ = mask;
  segments_.assign(segments.begin(), segments.end());
  documents_.assign(documents.begin(), documents.end());
  tokens_.clear();
  for (const SegmentList& list : segments_) tokens_.push_back(token_count(list));
  const auto largest = std::max_element(tokens_.begin(), tokens_.end()) - tokens_.begin();
  parts_ = ring_parts(segments_[largest], sequences, N == 1 ? any : min_part_);
  pairs_.assign(N, {});

  const std::vector<char> needed = ring_needs(mask, extents);
  plan_ = ring_plan(needed, size_, rank_);
  traveling_.assign(plan_.size(), {});
  for (int hop = 0; hop < size_; ++hop) {
    const auto& [step, deliver_to, return_from, return_replaces] = plan_[hop];
    Traveling& tokens = traveling_[hop];
    if (step) {
      tokens.of_step = hop == 0 ? whole(rank_) : traveling_to(needed, step->owner, rank_);
      last_hop_ = hop;
    }
    if (deliver_to != no_peer) tokens.of_delivery = traveling_to(needed, rank_, deliver_to);
    if (return_from != no_peer) tokens.of_return = traveling_to(needed, rank_, return_from);
  }
}

RingPart RingBatch::traveling_to(std::span<const char> needed, int owner, int member) const {
  if (sequences_ != 1 || mask_.window == 0) return whole(owner);
  const auto meets = [&](int hop) {
    return hop > 0 && hop < size_ && needed[static_cast<std::size_t>((owner + hop) % size_) * size_ + owner] != 0;
  };
  int first = (member - owner + size_) % size_, last = first;
  while (meets(first - 1)) --first;
  while (meets(last + 1)) ++last;
  return part_seen(mask_, segments_, owner, first, last);
}

SegmentList RingBatch::segments_of_part(int owner, const RingPart& part) const {
  return segments_of_range(segments_[owner], part.first_token, part.first_token + part.tokens);
}

std::span<const std::int64_t> RingBatch::pairs_of(const RingStep& step) {
  std::vector<std::int64_t>& known = pairs_[step.hop];
  for (std::size_t i = known.size(); i < parts_.size(); ++i) {
    const RingPart part = common_part(parts_[i], whole(step.owner));
    const std::span<const DocumentStarts> all(documents_);
    const auto starts = all.empty() ? all : all.subspan(part.first_sequence, static_cast<std::size_t>(part.sequences));
    known.push_back(visible_pairs(mask_, segments_[rank_], segments_of_part(step.owner, part), part.sequences, starts));
  }
  return known;
}

}  // namespace ringtrain
