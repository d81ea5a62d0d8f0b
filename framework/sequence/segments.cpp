#include "framework/sequence/segments.h"

#include <algorithm>
#include <utility>

namespace ringtrain {

std::int64_t token_count(std::span<const Segment> segments) {
  std::int64_t count = 0;
  for (const Segment& segment : segments) count += segment.count;
  return count;
}

std::int64_t position_of(std::span<const Segment> segments, std::int64_t i) {
  for (const Segment& segment : segments) {
    if (i < segment.count) return segment.position(i);
    i -= segment.count;
  }
  fail(ExitCode::internal, "local token {} beyond the shard's end", i);
}

SegmentList segments_of_range(std::span<const Segment> segments, std::int64_t begin, std::int64_t end) {
  SegmentList range;
  std::int64_t first = 0;  // of the segment
  for (const Segment& segment : segments) {
    const std::int64_t from = std::max<std::int64_t>(0, begin - first), to = std::min(segment.count, end - first);
    if (from < to) range.push_back({segment.position(from), segment.stride, to - from});
    first += segment.count;
  }
  return range;
}

const char* name_of(Layout layout) {
  constexpr std::array names{"contiguous", "striped", "zigzag"};
  static_assert(names.size() == all_layouts.size());
  return names[static_cast<std::size_t>(layout)];
}

SegmentList shard_segments(Layout layout, std::int64_t length, int ranks, int rank, const CallerLine& line) {
  if (length < 0 || ranks < 1 || rank < 0 || rank >= ranks) [[unlikely]] {
    refuse_call(line, fmt::format("rank {} of {} has no shard of a sequence of {} tokens: the rank must be 0 to ranks "
                                  "- 1, the tokens 0 or more",
                                  rank, ranks, length));
  }
  const std::int64_t base = length / ranks, extra = length % ranks;
  const auto size = [&](std::int64_t r) { return base + (r < extra ? 1 : 0); };
  const auto before = [&](std::int64_t r) { return base * r + std::min(r, extra); };
  SegmentList segments;
  if (layout == Layout::contiguous) {
    segments = {{before(rank), 1, size(rank)}};
  } else if (layout == Layout::striped) {
    segments = {{rank, ranks, size(rank)}};
  } else {
    // First chunks are in rank order, second chunks after them in reverse; if a shard is odd, its first chunk is
    // longer.
    const auto first = [&](std::int64_t r) { return (size(r) + 1) / 2; };
    const auto firsts_before = [&](std::int64_t r) {
      return std::min(r, extra) * ((base + 2) / 2) + std::max<std::int64_t>(0, r - extra) * ((base + 1) / 2);
    };
    const std::int64_t seconds_behind = (length - firsts_before(ranks)) - (before(rank + 1) - firsts_before(rank + 1));
    segments = {{firsts_before(rank), 1, first(rank)},
                {firsts_before(ranks) + seconds_behind, 1, size(rank) - first(rank)}};
  }
  std::erase_if(segments, [](const Segment& segment) { return segment.count == 0; });
  return segments;
}

namespace {

/// Returns the sum of floor((a * i + b) / m) over i in [0, n); a, b >= 0, m >= 1. Similar to Euclid's algorithm.
std::int64_t floor_sum(std::int64_t n, std::int64_t m, std::int64_t a, std::int64_t b) {
  std::int64_t sum = 0;
  while (n > 0) {
    sum += (a / m) * (n * (n - 1) / 2) + (b / m) * n;
    a %= m;
    b %= m;
    const std::int64_t last = a * n + b;  // the code below counts the points under the line by rows, not columns
    n = last / m;
    b = last % m;
    std::swap(a, m);
  }
  return sum;
}

/// Returns the number of pairs of a query at position q and a key at position k with k <= q + shift.
std::int64_t pairs_up_to(const Segment& queries, const Segment& keys, std::int64_t shift) {
  if (queries.count == 0 || keys.count == 0) return 0;
  const auto first_at_least = [&](std::int64_t distance) {  // the first query this far or farther from the first key
    const std::int64_t missing = distance - (queries.start + shift - keys.start);
    return missing <= 0 ? 0 : std::min(queries.count, (missing + queries.stride - 1) / queries.stride);
  };
  const std::int64_t some = first_at_least(0), all = first_at_least(keys.last() - keys.start);
  const std::int64_t offset = queries.position(some) + shift - keys.start;
  return (all - some) + floor_sum(all - some, keys.stride, queries.stride, offset) + (queries.count - all) * keys.count;
}

}  // namespace

std::int64_t visible_pairs(const AttentionMask& mask, std::span<const Segment> queries, std::span<const Segment> keys) {
  const PositionRange distances = visible_distances(mask);
  std::int64_t pairs = 0;
  for (const Segment& query : queries) {
    for (const Segment& key : keys) {
      pairs += pairs_up_to(query, key, -distances.first) - pairs_up_to(query, key, -distances.last - 1);
    }
  }
  return pairs;
}

bool may_see(const AttentionMask& mask, const ShardExtents& queries, const ShardExtents& keys) {
  ensure(queries.size() == keys.size(), "extents of the same micro-batch");
  for (std::size_t b = 0; b < queries.size(); ++b) {
    for (const SegmentExtent& q : queries[b]) {
      for (const SegmentExtent& k : keys[b]) {
        const bool documents = q.first_document <= k.last_document && k.first_document <= q.last_document;
        if (documents && tile_visibility(mask, {q.first_position, q.last_position},
                                         {k.first_position, k.last_position}) != TileVisibility::none) {
          return true;
        }
      }
    }
  }
  return false;
}

}  // namespace ringtrain
