// The shards of all ranks of a layout for some sequences, as a ring's micro-batch takes them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "framework/sequence/segments.h"

namespace ringtrain::testing {

struct Shards {
  std::vector<SegmentList> segments;  // by rank
  std::vector<ShardExtents> extents;
};

/// For B sequences of S tokens. documents: the id of each token [B, S]; empty: one document each.
inline Shards shards_of(Layout layout, std::int64_t S, int ranks, std::int64_t B = 1,
                        std::span<const std::int32_t> documents = {}) {
  Shards all;
  for (int rank = 0; rank < ranks; ++rank) {
    const SegmentList& own = all.segments.emplace_back(shard_segments(layout, S, ranks, rank));
    ShardExtents& extents = all.extents.emplace_back(B);
    for (std::int64_t b = 0; b < B; ++b) {
      const auto document = [&](std::int64_t position) { return documents.empty() ? 0 : documents[b * S + position]; };
      for (const Segment& segment : own) {
        extents[b].push_back({segment.start, segment.last(), document(segment.start), document(segment.last())});
      }
    }
  }
  return all;
}

}  // namespace ringtrain::testing
