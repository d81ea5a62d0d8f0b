// Tiles of a shard: runs of at most `size` tokens of one segment, cut where the position crosses a multiple of size *
// stride. Tiles thus have the same positions in the whole sequence however it is sharded, as far as segment edges
// allow. Also computes which part of a tile other tokens can see. Pure values.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/attention.h"

namespace ringtrain::cpu {

/// Local tokens [begin, begin + count) at positions start, start + stride, ...; count >= 1.
struct Tile {
  std::int64_t begin = 0, count = 0, start = 0, stride = 1;
  std::int64_t position(std::int64_t i) const { return start + stride * i; }
};

class TileList {
 public:
  TileList(std::span<const Segment> segments, std::int64_t size);
  std::int64_t count() const { return count_; }
  std::int64_t size() const { return size_; }
  /// Returns tile index, 0 <= index < count(), in the order of local tokens.
  Tile operator[](std::int64_t index) const;
  /// Returns the largest number of tiles of `tokens` tokens in at most most_segments segments.
  static std::int64_t bound(std::int64_t tokens, std::int64_t size) { return tokens / size + 2 * most_segments; }

 private:
  std::span<const Segment> segments_;
  std::int64_t size_, count_ = 0;
};

/// Inclusive ranges of positions and documents of a run of tokens; the documents are 0 if there is only one.
struct Extent {
  std::int64_t first, last;
  std::int32_t first_document, last_document;
};
/// Local indices [begin, end) of a tile.
struct LocalRange {
  std::int64_t begin, end;
  bool empty() const { return begin >= end; }
};

/// Returns the extent of tokens `run` of a tile; documents: those of the shard's tokens, or null.
Extent extent_of(const Tile& tile, LocalRange run, const std::int32_t* documents);

/// Returns the part of a tile of keys that the queries may see (a superset of what they see, exact in positions), and
/// the part of a tile of queries that may see the keys.
LocalRange clip_keys(const AttentionMask& mask, const Tile& keys, const std::int32_t* documents, const Extent& queries);
LocalRange clip_queries(const AttentionMask& mask, const Tile& queries, const std::int32_t* documents,
                        const Extent& keys);
/// Returns whether every query of one extent sees every key of the other.
bool all_visible(const AttentionMask& mask, const Extent& queries, const Extent& keys);

}  // namespace ringtrain::cpu
