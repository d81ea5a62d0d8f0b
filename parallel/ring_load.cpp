#include "parallel/ring_load.h"

#include <algorithm>
#include <numeric>

namespace ringtrain {

namespace {

/// Tokens of one sequence of a shard that belong to one document: local [begin, end).
struct Run {
  std::int64_t begin, end;
};

/// Return where those of local tokens [begin, end) stand.
SegmentList part_of(std::span<const Segment> segments, const Run& run) {
  SegmentList part;
  std::int64_t offset = 0;
  for (const Segment& segment : segments) {
    const std::int64_t from = std::max(run.begin - offset, std::int64_t{0});
    const std::int64_t to = std::min(run.end - offset, segment.count);
    if (from < to) part.push_back({segment.position(from), segment.stride, to - from});
    offset += segment.count;
  }
  return part;
}

}  // namespace

std::int64_t visible_pairs(const AttentionMask& mask, const AttentionTokens& queries, const AttentionTokens& keys,
                           std::int64_t sequences) {
  if (queries.documents.empty()) return sequences * visible_pairs(mask, queries.segments, keys.segments);
  std::int64_t pairs = 0;
  for (std::int64_t b = 0; b < sequences; ++b) {
    const auto documents_of = [&](const AttentionTokens& tokens) {
      const std::int64_t T = tokens.documents.dim(1);
      return std::span(tokens.documents.as<std::int32_t>() + b * T, static_cast<std::size_t>(T));
    };
    const auto of_queries = documents_of(queries), of_keys = documents_of(keys);
    for (std::size_t begin = 0; begin < of_queries.size();) {  // documents ascend along a shard
      const std::int32_t document = of_queries[begin];
      const auto end =
          static_cast<std::size_t>(std::ranges::upper_bound(of_queries.subspan(begin), document) - of_queries.begin());
      const auto same = std::ranges::equal_range(of_keys, document);
      const Run run{same.begin() - of_keys.begin(), same.end() - of_keys.begin()};
      if (run.begin < run.end) {
        pairs += visible_pairs(
            mask, part_of(queries.segments, {static_cast<std::int64_t>(begin), static_cast<std::int64_t>(end)}),
            part_of(keys.segments, run));
      }
      begin = end;
    }
  }
  return pairs;
}

std::vector<std::int64_t> pairs_by_rank(const AttentionMask& mask, Layout layout, std::int64_t length, int ranks) {
  const Segment all{0, 1, length};
  std::vector<std::int64_t> pairs;
  for (int rank = 0; rank < ranks; ++rank) {
    pairs.push_back(visible_pairs(mask, shard_segments(layout, length, ranks, rank), {&all, 1}));
  }
  return pairs;
}

double imbalance(std::span<const std::int64_t> loads) {
  return imbalance(std::vector<double>(loads.begin(), loads.end()));
}

double imbalance(std::span<const double> loads) {
  const double sum = std::accumulate(loads.begin(), loads.end(), 0.0);
  if (sum == 0) return 1;
  return *std::max_element(loads.begin(), loads.end()) * static_cast<double>(loads.size()) / sum;
}

double RingPassLoad::wait_seconds() const {
  return std::accumulate(hop_waits.begin(), hop_waits.end(), 0.0);
}

}  // namespace ringtrain
