#include "parallel/ring/ring_load.h"

#include <limits>

#include "parallel/ring/ring_parts.h"

namespace ringtrain {

std::int64_t visible_pairs(const AttentionMask& mask, std::span<const Segment> queries, std::span<const Segment> keys,
                           std::int64_t sequences, std::span<const DocumentStarts> documents) {
  if (documents.empty()) return sequences * visible_pairs(mask, queries, keys);
  std::int64_t pairs = 0;
  for (const DocumentStarts& starts : documents) {
    for (std::size_t i = 0; i < starts.size(); ++i) {
      const std::int64_t end = i + 1 < starts.size() ? starts[i + 1] : std::numeric_limits<std::int64_t>::max();
      const auto of_document = [&](std::span<const Segment> segments) {
        return segments_of_range(segments, tokens_before(segments, starts[i]), tokens_before(segments, end));
      };
      pairs += visible_pairs(mask, of_document(queries), of_document(keys));
    }
  }
  return pairs;
}

std::vector<std::int64_t> pairs_by_rank(const AttentionMask& mask, Layout layout, std::int64_t length, int ranks) {
  const Segment all{0, 1, length};
  std::vector<std::int64_t> pairs;
  pairs.reserve(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    pairs.push_back(visible_pairs(mask, shard_segments(layout, length, ranks, rank), {&all, 1}));
  }
  return pairs;
}

}  // namespace ringtrain
