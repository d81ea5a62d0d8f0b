#include "kernels/cpu/attention_tiles.h"

#include <algorithm>

#include "framework/error.h"

namespace ringtrain::cpu {

namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return a >= 0 ? (a + b - 1) / b : -(-a / b);
}

std::int64_t tiles_of(const Segment& segment, std::int64_t size) {
  if (segment.count == 0) return 0;
  const std::int64_t cell = size * segment.stride;
  return segment.last() / cell - segment.start / cell + 1;
}

LocalRange clip(const Tile& tile, const std::int32_t* documents, const PositionRange& positions, const Extent& other) {
  LocalRange run{std::max<std::int64_t>(0, ceil_div(positions.first - tile.start, tile.stride)),
                 std::min(tile.count, ceil_div(positions.last + 1 - tile.start, tile.stride))};
  if (!documents || run.empty()) return run;
  const std::int32_t* document = documents + tile.begin;
  if (document[run.end - 1] < other.first_document || document[run.begin] > other.last_document) return {0, 0};
  while (document[run.begin] < other.first_document) ++run.begin;
  while (document[run.end - 1] > other.last_document) --run.end;
  return run;
}

}  // namespace

TileList::TileList(std::span<const Segment> segments, std::int64_t size) : segments_(segments), size_(size) {
  ensure(std::ssize(segments) <= most_segments, "a shard has at most most_segments segments");
  for (const Segment& segment : segments) {
    ensure(segment.stride >= 1 && segment.stride < stride_bound, "a stride is from 1 to stride_bound - 1");
    count_ += tiles_of(segment, size);
  }
}

Tile TileList::operator[](std::int64_t index) const {
  std::int64_t begin = 0;
  for (const Segment& segment : segments_) {
    const std::int64_t tiles = tiles_of(segment, size_);
    if (index >= tiles) {
      index -= tiles;
      begin += segment.count;
      continue;
    }
    const std::int64_t cell = size_ * segment.stride, number = segment.start / cell + index;
    const std::int64_t from = std::max<std::int64_t>(0, ceil_div(number * cell - segment.start, segment.stride));
    const std::int64_t to = std::min(segment.count, ceil_div((number + 1) * cell - segment.start, segment.stride));
    return {begin + from, to - from, segment.position(from), segment.stride};
  }
  fail(ExitCode::internal, "attention asked for a tile beyond the shard's last");
}

Extent extent_of(const Tile& tile, LocalRange run, const std::int32_t* documents) {
  return {tile.position(run.begin), tile.position(run.end - 1), documents ? documents[tile.begin + run.begin] : 0,
          documents ? documents[tile.begin + run.end - 1] : 0};
}

LocalRange clip_keys(const AttentionMask& mask, const Tile& keys, const std::int32_t* documents,
                     const Extent& queries) {
  return clip(keys, documents, keys_seen_by(mask, {queries.first, queries.last}), queries);
}

LocalRange clip_queries(const AttentionMask& mask, const Tile& queries, const std::int32_t* documents,
                        const Extent& keys) {
  return clip(queries, documents, queries_that_see(mask, {keys.first, keys.last}), keys);
}

bool all_visible(const AttentionMask& mask, const Extent& queries, const Extent& keys) {
  return tile_visibility(mask, {queries.first, queries.last}, {keys.first, keys.last}) == TileVisibility::all &&
         queries.first_document == queries.last_document && keys.first_document == keys.last_document &&
         queries.first_document == keys.first_document;
}

}  // namespace ringtrain::cpu
