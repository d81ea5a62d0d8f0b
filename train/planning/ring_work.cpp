#include "train/planning/ring_work.h"

#include <algorithm>
#include <cmath>

#include "framework/error.h"
#include "framework/random.h"
#include "parallel/ring/ring_load.h"

namespace ringtrain {

namespace {

/// Return which document a position is of.
std::int32_t document_of(const DocumentStarts& starts, std::int64_t position) {
  return static_cast<std::int32_t>(std::ranges::upper_bound(starts, position) - starts.begin()) - 1;
}

/// Return the starts that divide positions of both segments: from the document that is open at the later beginning to
/// the first that begins after one of them has ended.
DocumentStarts starts_within(const DocumentStarts& starts, const Segment& a, const Segment& b) {
  const std::int64_t begin = std::max(a.start, b.start), end = std::min(a.last(), b.last());
  const auto first = std::ranges::upper_bound(starts, begin) - 1;
  const auto next = std::upper_bound(first, starts.end(), std::max(begin, end));
  return {first, next == starts.end() ? next : next + 1};
}

}  // namespace

RingWork::RingWork(const RingCase& ring) : case_(ring) {
  const int N = ring.ranks;
  even_ = ring.documents.empty() && ring.mask.window == 0 && ring.length % (2 * N) == 0;
  if (N > largest_ring && !even_) {
    fail(ExitCode::usage,
         "a ring of {} ranks is more than the {} that a plan simulates rank by rank: leave out --documents and windows "
         "and make training.seq_len a multiple of {}, or use more data ranks",
         N, largest_ring, 2 * N);
  }
  std::vector<ShardExtents> extents;
  for (int rank = 0; rank < N; ++rank) {
    segments_.push_back(shard_segments(ring.layout, ring.length, N, rank));
    tokens_.push_back(token_count(segments_.back()));
    if (even_ && rank > 1) continue;  // two ranks show what all need
    std::vector<SegmentExtent> sequence;
    for (const Segment& segment : segments_.back()) {
      const bool whole = ring.documents.empty();
      sequence.push_back({segment.start, segment.last(), whole ? 0 : document_of(ring.documents, segment.start),
                          whole ? 0 : document_of(ring.documents, segment.last())});
    }
    extents.push_back({sequence});
  }
  needed_ = ring_needs(ring.mask, extents);
  if (even_) even_needs_ = {.earlier = N > 1 && needed_[2] != 0, .later = N > 1 && needed_[1] != 0};
  parts_ = ring_parts(segments_.front(), ring.sequences, N == 1 ? INT64_MAX : std::max<std::int64_t>(1, ring.min_part));
  known_.assign(3 * (parts_.size() + 1), -1);
}

std::int64_t RingWork::part_tokens(int owner, int part) const {
  const RingPart own = part_of_shard(parts_[static_cast<std::size_t>(part)], tokens_[static_cast<std::size_t>(owner)]);
  return own.sequences * own.tokens;
}

std::int64_t RingWork::count(int rank, int owner, int part) const {
  const SegmentList& queries = segments_[static_cast<std::size_t>(rank)];
  SegmentList keys = segments_[static_cast<std::size_t>(owner)];
  std::int64_t sequences = case_.sequences;
  if (part >= 0) {
    const RingPart own =
        part_of_shard(parts_[static_cast<std::size_t>(part)], tokens_[static_cast<std::size_t>(owner)]);
    keys = segments_of_range(keys, own.first_token, own.first_token + own.tokens);
    sequences = own.sequences;
  }
  if (case_.documents.empty()) return sequences * visible_pairs(case_.mask, queries, keys);
  std::int64_t pairs = 0;
  for (const Segment& query : queries) {
    for (const Segment& key : keys) {
      const bool apart = query.stride == 1 && key.stride == 1;  // else their positions alternate: all documents count
      const DocumentStarts starts = apart ? starts_within(case_.documents, query, key) : case_.documents;
      pairs += visible_pairs(case_.mask, {&query, 1}, {&key, 1}, 1, {&starts, 1});
    }
  }
  return sequences * pairs;
}

std::int64_t RingWork::pairs(int rank, int owner) const {
  return pairs(rank, owner, -1);
}

std::int64_t RingWork::pairs(int rank, int owner, int part) const {
  if (!even_) return count(rank, owner, part);
  const std::size_t kind = rank == owner ? 1 : rank > owner ? 2 : 0;
  std::int64_t& known = known_[3 * static_cast<std::size_t>(part + 1) + kind];
  if (known < 0) known = count(rank, owner, part);
  return known;
}

std::int64_t RingWork::all_pairs() const {
  const Segment all{0, 1, case_.length};
  if (case_.documents.empty()) return case_.sequences * visible_pairs(case_.mask, {&all, 1}, {&all, 1});
  return case_.sequences * visible_pairs(case_.mask, {&all, 1}, {&all, 1}, 1, {&case_.documents, 1});
}

DocumentStarts sample_documents(std::int64_t length, double mean, std::uint64_t seed) {
  if (mean <= 0) return {};
  DocumentStarts starts{0};
  for (std::uint64_t i = 0;; ++i) {
    const double drawn = -mean * std::log1p(-random_uniform(seed, Purpose::simulation, i));
    const std::int64_t next = starts.back() + std::max<std::int64_t>(1, std::llround(drawn));
    if (next >= length) return starts;
    starts.push_back(next);
  }
}

}  // namespace ringtrain
