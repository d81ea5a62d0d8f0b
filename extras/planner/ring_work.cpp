#include "extras/planner/ring_work.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "framework/error.h"
#include "framework/random.h"
#include "parallel/ring/ring_load.h"

namespace ringtrain {

namespace {

constexpr std::int64_t most_known = 1 << 22;  // pairs of blocks and parts that are kept

/// Returns which document a position is of.
std::int32_t document_of(const DocumentStarts& starts, std::int64_t position) {
  return static_cast<std::int32_t>(std::ranges::upper_bound(starts, position) - starts.begin()) - 1;
}

/// Returns the starts that divide positions of both segments: from the document that is open at the later beginning to
/// the first that begins after one of them has ended.
DocumentStarts starts_within(const DocumentStarts& starts, const Segment& a, const Segment& b) {
  const std::int64_t begin = std::max(a.start, b.start), end = std::min(a.last(), b.last());
  const auto first = std::ranges::upper_bound(starts, begin) - 1;
  const auto next = std::upper_bound(first, starts.end(), std::max(begin, end));
  return {first, next == starts.end() ? next : next + 1};
}

/// Returns whether ranks can be told apart by their order alone: the i-th tokens of a rank and of the next one have
/// nobody else's token between them, for every i. Then a third rank sees as many of the one's tokens as of the other's,
/// and is seen by as many; so what two ranks see of each other depends on which comes first, and what a rank sees of
/// itself depends on the number of its tokens. It is so where segments of one shape make one stretch together, or
/// alternate token by token.
bool neighbours_stand_side_by_side(const std::vector<SegmentList>& segments) {
  for (std::size_t rank = 1; rank < segments.size(); ++rank) {
    const auto alike = [](const Segment& a, const Segment& b) {
      const std::int64_t apart = std::abs(a.start - b.start);
      return a.stride == b.stride && a.count == b.count && (apart == 1 || (a.stride == 1 && apart == a.count));
    };
    if (!std::ranges::equal(segments[rank - 1], segments[rank], alike)) return false;
  }
  return true;
}

}  // namespace

RingWork::RingWork(const RingCase& ring) : case_(ring) {
  const int N = ring.ranks;
  if (N > largest_ring) {
    fail(ExitCode::usage,
         "a ring of {} ranks is more than the {} that a plan simulates: use more data ranks (--mesh, --set "
         "mesh.sequence)",
         N, largest_ring);
  }
  for (int rank = 0; rank < N; ++rank) {
    segments_.push_back(shard_segments(ring.layout, ring.length, N, rank));
    tokens_.push_back(token_count(segments_.back()));
  }
  even_ = ring.documents.empty() && ring.mask.window == 0 && neighbours_stand_side_by_side(segments_);
  std::vector<ShardExtents> extents;
  for (int rank = 0; rank < (even_ ? std::min(N, 2) : N); ++rank) {  // two ranks of an even ring show what all need
    std::vector<SegmentExtent> sequence;
    for (const Segment& segment : segments_[rank]) {
      const bool whole = ring.documents.empty();
      sequence.push_back({segment.start, segment.last(), whole ? 0 : document_of(ring.documents, segment.start),
                          whole ? 0 : document_of(ring.documents, segment.last())});
    }
    extents.push_back({sequence});
  }
  needed_ = ring_needs(ring.mask, extents);
  if (even_) even_needs_ = {.earlier = N > 1 && needed_[2] != 0, .later = N > 1 && needed_[1] != 0};
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
  const std::int64_t uneven = std::int64_t{N} * N * (parts() + 1);
  kinds_ = even_ ? 3 : uneven <= most_known ? std::int64_t{N} * N : 0;
  known_.assign(kinds_ * (parts_.size() + 1), -1);
}

std::int64_t RingWork::part_tokens(int owner, int part) const {
  const RingPart own = part_of_shard(parts_[part], tokens_[owner]);
  return own.sequences * own.tokens;
}

std::int64_t RingWork::travelling_tokens(int owner, int rank, int part) const {
  if (!sends_some()) return part < 0 ? tokens(owner) : part_tokens(owner, part);
  const int hop = rank == owner ? 1 : (rank - owner + ranks()) % ranks();
  const auto run = std::ranges::lower_bound(runs_[owner], hop, {}, &Run::last_hop);
  ensure(run != runs_[owner].end() && run->first_hop <= hop, "a block travels to who meets it");
  return part < 0 ? run->seen.tokens : common_part(part_of_shard(parts_[part], tokens_[owner]), run->seen).tokens;
}

RingTokens RingWork::sent() const {
  const std::int64_t N = ranks();
  RingTokens sum;
  const auto add = [&](int rank, int hop) {
    const auto met = step(rank, hop);
    if (!met) return;
    const auto own = static_cast<double>(met->gradient_to < 0 && hop == 0 ? 0 : travelling_tokens(met->owner, rank));
    if (hop > 0) sum.keys += own;
    if (met->gradient_to >= 0) sum.gradients += own;
  };
  for (int rank = 0; rank < N; ++rank) {
    for (int hop = 0; hop < (even_ ? 1 : N); ++hop) add(rank, hop);
  }
  if (even_) {  // every block of others is as long, and is sent back or on
    const auto blocks = static_cast<double>(N * (N - 1) / 2 * (int{even_needs_.earlier} + int{even_needs_.later}));
    sum.keys += blocks * static_cast<double>(tokens(0));
    sum.gradients += blocks * static_cast<double>(tokens(0));
  }
  return sum;
}

std::int64_t RingWork::count(int rank, int owner, int part) const {
  const SegmentList& queries = segments_[rank];
  SegmentList keys = segments_[owner];
  std::int64_t sequences = case_.sequences;
  if (part >= 0) {
    const RingPart own = part_of_shard(parts_[part], tokens_[owner]);
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

double RingWork::documents_of_a_pair() const {
  const bool alternate = !segments_.front().empty() && segments_.front().front().stride > 1;
  return alternate ? std::max(1.0, static_cast<double>(case_.documents.size())) : 1;
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
