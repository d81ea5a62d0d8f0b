#include "extras/planner/ring_work.h"

#include <algorithm>
#include <cmath>

#include "framework/error.h"
#include "framework/random.h"
#include "parallel/ring/ring_load.h"

namespace ringtrain {

namespace {

/// Returns the document of a position; -1 if all positions are in one document.
std::int32_t document_of(const DocumentStarts& starts, std::int64_t position) {
  return static_cast<std::int32_t>(std::ranges::upper_bound(starts, position) - starts.begin()) - 1;
}

/// Returns the starts that separate positions of both segments: from the document at the later beginning to the first
/// that begins after one of the segments has ended.
DocumentStarts starts_within(const DocumentStarts& starts, const Segment& a, const Segment& b) {
  const std::int64_t begin = std::max(a.start, b.start), end = std::min(a.last(), b.last());
  const auto first = std::ranges::upper_bound(starts, begin) - 1;
  const auto next = std::upper_bound(first, starts.end(), std::max(begin, end));
  return {first, next == starts.end() ? next : next + 1};
}

}  // namespace

RingWork::RingWork(const RingCase& ring) : case_(ring) {
  const int N = ring.ranks;
  if (N > largest_ring || N > ring.length) {
    fail(ExitCode::usage,
         "a ring of {} ranks is too long: a plan simulates at most {} ranks for sequences of {} tokens; use more data "
         "ranks (--mesh, --set mesh.sequence)",
         N, std::min<std::int64_t>(largest_ring, ring.length), ring.length);
  }
  std::vector<ShardExtents> extents;
  for (int rank = 0; rank < N; ++rank) {
    const SegmentList& segments = segments_.emplace_back(shard_segments(ring.layout, ring.length, N, rank));
    tokens_.push_back(token_count(segments));
    std::vector<SegmentExtent>& sequence = extents.emplace_back().emplace_back();
    for (const Segment& segment : segments) {
      sequence.push_back({segment.start, segment.last(), document_of(ring.documents, segment.start),
                          document_of(ring.documents, segment.last())});
    }
  }
  needed_ = ring_needs(ring.mask, extents);
  parts_ = ring_parts(segments_.front(), ring.sequences, N == 1 ? INT64_MAX : std::max<std::int64_t>(1, ring.min_part));
  for (int owner = 0; sends_some() && owner < N; ++owner) {
    std::vector<Run>& runs = runs_.emplace_back();
    for (int hop = 1; hop < N; ++hop) {
      if (needed_[std::int64_t{(owner + hop) % N} * N + owner] == 0) continue;
      if (runs.empty() || runs.back().last_hop + 1 != hop) runs.push_back({.first_hop = hop});
      runs.back().last_hop = hop;
    }
    for (Run& run : runs) run.seen = part_seen(ring.mask, segments_, owner, run.first_hop, run.last_hop);
  }
  known_.assign(std::int64_t{N} * N * (parts() + 1), -1);
}

std::int64_t RingWork::traveling_tokens(int owner, int rank, int part) const {
  const RingPart owner_part = part < 0 ? RingPart{} : common_part(parts_[part], {.tokens = tokens_[owner]});
  if (!sends_some()) return part < 0 ? tokens(owner) : owner_part.sequences * owner_part.tokens;
  const int hop = rank == owner ? 1 : (rank - owner + ranks()) % ranks();
  const auto run = std::ranges::lower_bound(runs_[owner], hop, {}, &Run::last_hop);
  ensure(run != runs_[owner].end() && run->first_hop <= hop, "a block travels to who meets it");
  return part < 0 ? run->seen.tokens : common_part(owner_part, run->seen).tokens;
}

RingTokens RingWork::sent() const {
  const int N = ranks();
  RingTokens sum;
  for (int rank = 0; rank < N; ++rank) {
    for (int hop = 0; hop < N; ++hop) {
      const auto met = step(rank, hop);
      if (!met || (hop == 0 && met->gradient_to < 0)) continue;
      const auto tokens = static_cast<double>(traveling_tokens(met->owner, rank));
      if (hop > 0) sum.keys += tokens;
      if (met->gradient_to >= 0) sum.gradients += tokens;
    }
  }
  return sum;
}

std::int64_t RingWork::count(int rank, int owner, int part) const {
  const SegmentList& queries = segments_[rank];
  SegmentList keys = segments_[owner];
  std::int64_t sequences = case_.sequences;
  if (part >= 0) {
    const RingPart owner_part = common_part(parts_[part], {.tokens = tokens_[owner]});
    keys = segments_of_range(keys, owner_part.first_token, owner_part.first_token + owner_part.tokens);
    sequences = owner_part.sequences;
  }
  if (case_.documents.empty()) return sequences * visible_pairs(case_.mask, queries, keys);
  std::int64_t pairs = 0;
  for (const Segment& query : queries) {
    for (const Segment& key : keys) {
      const bool apart = query.stride == 1 && key.stride == 1;  // otherwise they alternate: all documents count
      const DocumentStarts starts = apart ? starts_within(case_.documents, query, key) : case_.documents;
      pairs += visible_pairs(case_.mask, {&query, 1}, {&key, 1}, 1, {&starts, 1});
    }
  }
  return sequences * pairs;
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
