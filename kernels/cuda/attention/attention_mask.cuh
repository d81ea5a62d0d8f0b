// Which query sees which key, on the device: the arithmetic of framework/sequence/visibility.h, for tiles of a shard
// and for pairs within two tiles. All attention kernels, portable and Hopper's, use this file.
//
// A tile is a run of at most `size` tokens of one segment, so positions are affine within it. The relation "some query
// of this tile may see some key of that one" follows only from the extents of the two tiles (first and last position,
// first and last document). So a query tile's list of key tiles and a key tile's list of query tiles are the same
// relation read in two directions, on which backward's turns rely. The relation may include a tile that turns out to be
// hidden (a window that falls between two keys of a wide stride), but never omits one that is seen.
//
// Positions increase along a shard, so the tiles of one segment that a tile may see are a range; documents do not
// decrease, so they allow a range of tokens. A block finds these ranges once, with one or two divisions per segment and
// two warp searches, before it loads anything; no table is made on the host, and no argument grows with the length.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "framework/error.h"
#include "framework/sequence/segments.h"
#include "kernels/attention.h"
#include "kernels/cuda/ptx.cuh"

namespace ringtrain::cuda {

/// A shard's tokens as a kernel argument: const __grid_constant__ TokenMap.
struct TokenMap {
  struct Run {
    std::int64_t start;        // position of its first token
    int stride, begin, count;  // begin: its first token's index in the shard; count >= 1
  };
  const std::int32_t* documents;  // [B, tokens] on the device; null: one document
  int tokens, segments;
  Run runs[most_segments];
};

/// Returns the argument for these tokens. Throws if they exceed the range of the device's arithmetic.
inline TokenMap token_map(const AttentionTokens& tokens) {
  TokenMap map{};
  map.documents = tokens.documents.empty() ? nullptr : tokens.documents.as<std::int32_t>();
  std::int64_t begin = 0;
  for (const Segment& segment : tokens.segments) {
    if (segment.count == 0) continue;
    ensure(map.segments < most_segments, "a shard has at most most_segments segments");
    ensure(segment.stride >= 1 && segment.stride < stride_bound, "a stride is from 1 to stride_bound - 1");
    ensure(begin + segment.count < (std::int64_t{1} << 30), "attention on CUDA takes fewer than 2^30 tokens a shard");
    map.runs[map.segments++] = {segment.start, static_cast<int>(segment.stride), static_cast<int>(begin),
                                static_cast<int>(segment.count)};
    begin += segment.count;
  }
  map.tokens = static_cast<int>(begin);
  return map;
}

/// Tokens [begin, begin + count) of a shard, at positions start, start + stride, ...; tile number `index` of `segment`.
struct Tile {
  std::int64_t start;
  int stride, begin, count, segment, index;
  __host__ __device__ std::int64_t last() const { return start + static_cast<std::int64_t>(stride) * (count - 1); }
  __host__ __device__ PositionRange positions() const { return {start, last()}; }
};

__host__ __device__ inline int tiles_of(const TokenMap::Run& run, int size) {
  return (run.count - 1) / size + 1;
}

/// Returns the number of tiles of a shard.
__host__ __device__ inline int tile_count(const TokenMap& map, int size) {
  int tiles = 0;
  for (int segment = 0; segment < map.segments; ++segment) tiles += tiles_of(map.runs[segment], size);
  return tiles;
}

/// Returns the largest number of tiles that `tokens` tokens in any segments can form.
constexpr std::int64_t tile_bound(std::int64_t tokens, int size) {
  return tokens / size + most_segments;
}

__host__ __device__ inline Tile tile_of(const TokenMap& map, int size, int segment, int index) {
  const TokenMap::Run& run = map.runs[segment];
  const int from = index * size, left = run.count - from;
  return {run.start + static_cast<std::int64_t>(run.stride) * from,
          run.stride,
          run.begin + from,
          left < size ? left : size,
          segment,
          index};
}

/// Returns tile `number` of the shard, 0 <= number < tile_count, in the order of its tokens.
__host__ __device__ inline Tile tile_at(const TokenMap& map, int size, int number) {
  int segment = 0;
  for (; segment + 1 < map.segments; ++segment) {
    const int tiles = tiles_of(map.runs[segment], size);
    if (number < tiles) break;
    number -= tiles;
  }
  return tile_of(map, size, segment, number);
}

/// Returns the first of the n nondecreasing documents that is >= value; n if there is none. Searches in 33 parts;
/// called by whole warps.
__device__ inline int first_not_before(const std::int32_t* documents, int n, std::int64_t value) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  int low = 0, high = n;  // the answer is in [low, high]
  while (low < high) {
    const int step = (high - low + 31) / 32, mine = low + lane * step + step - 1;
    const int probe = mine < high ? mine : high - 1;
    const int before = count_bits(__ballot_sync(0xFFFFFFFFU, __ldg(documents + probe) < value));
    if (before == 32) return high;
    const int reached = low + before * step + step - 1;
    low += before * step;
    high = reached < high ? reached : high - 1;
  }
  return low;
}

/// The tokens [begin, end) of another shard that a tile may see by documents. single: the tile has only one document,
/// so every token of the range has the same.
struct DocumentRange {
  int begin, end;
  bool single;
};

/// Returns the range of `other` for a tile of `mine` in sequence b. Called by whole warps; every lane gets the result.
__device__ inline DocumentRange documents_seen(const TokenMap& mine, const Tile& tile, const TokenMap& other, int b) {
  if (mine.documents == nullptr || other.documents == nullptr) return {0, other.tokens, true};
  const std::int32_t* of_tile = mine.documents + static_cast<std::int64_t>(b) * mine.tokens + tile.begin;
  const std::int32_t* others = other.documents + static_cast<std::int64_t>(b) * other.tokens;
  const std::int32_t first = __ldg(of_tile), last = __ldg(of_tile + tile.count - 1);
  return {first_not_before(others, other.tokens, first), first_not_before(others, other.tokens, std::int64_t{last} + 1),
          first == last};
}

/// Tiles [first, last] of one segment; none if first > last.
struct TileRange {
  int first, last;
  __host__ __device__ bool empty() const { return first > last; }
  __host__ __device__ int size() const { return empty() ? 0 : last - first + 1; }
};

/// Returns the tiles of a segment whose extents contain positions of the interval and tokens of the documents' range.
__host__ __device__ inline TileRange tiles_seen(const TokenMap& map, int size, int segment,
                                                const PositionRange& positions, const DocumentRange& documents) {
  constexpr TileRange none{0, -1};
  const TokenMap::Run& run = map.runs[segment];
  if (positions.last < run.start) return none;
  std::int64_t last = positions.last - run.start, first = positions.first - run.start;
  if (run.stride != 1) {
    last /= run.stride;
    first = first > 0 ? (first + run.stride - 1) / run.stride : 0;
  }
  // The documents' range is cut at tiles, not at tokens: see the top of this file.
  if (documents.begin - run.begin > first) first = documents.begin - run.begin;
  if (documents.end - 1 - run.begin < last) last = documents.end - 1 - run.begin;
  if (first >= run.count || last < 0) return none;
  if (first < 0) first = 0;
  if (last > run.count - 1) last = run.count - 1;
  return {static_cast<int>(first) / size, static_cast<int>(last) / size};
}

/// The tiles of another shard that a tile may see, in shared memory: found once by one warp, read by all.
struct TilesSeen {
  DocumentRange documents;
  TileRange ranges[most_segments];
};

/// Fills `seen` for a tile of `mine` in sequence b, which may see `positions` of `other`. Called by one whole warp; the
/// other warps read it after a barrier.
__device__ inline void find_tiles(TilesSeen& seen, const TokenMap& mine, const Tile& tile, const TokenMap& other,
                                  int size, const PositionRange& positions, int b) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  const DocumentRange documents = documents_seen(mine, tile, other, b);
  if (lane == 0) seen.documents = documents;
  if (lane < other.segments) seen.ranges[lane] = tiles_seen(other, size, lane, positions, documents);
}

/// Visits the tiles that were found, from the last downwards. It takes two registers.
struct TileCursor {
  int segment, index;

  /// Returns a cursor before the last tile. map: of the shard that has the tiles.
  __host__ __device__ static TileCursor before_last(const TokenMap& map, const TilesSeen& seen) {
    const int segment = map.segments - 1;
    return {segment, segment < 0 ? 0 : seen.ranges[segment].last + 1};
  }
  /// Moves to the next lower tile; returns false if there is none.
  __host__ __device__ bool next(const TilesSeen& seen) {
    if (segment < 0) return false;
    --index;
    while (index < seen.ranges[segment].first) {
      if (--segment < 0) return false;
      index = seen.ranges[segment].last;
    }
    return true;
  }
  __host__ __device__ Tile tile(const TokenMap& map, int size) const { return tile_of(map, size, segment, index); }
};

/// Visits the steps of a tile of keys: the tiles of queries from the last downwards, and for each of them every query
/// head of the group. The heads are the inner loop because blocks add to dq in turns: all blocks of a group then go
/// down the queries together. If tiles were the inner loop, each block would wait at every change of head for the
/// longest pass through that head.
struct GroupCursor {
  TileCursor queries;
  int head;  // in the group

  /// Moves to the next step; returns false if there is none. heads: of the group.
  __host__ __device__ bool next(const TilesSeen& seen, int heads) {
    if (++head < heads) return true;
    head = 0;
    return queries.next(seen);
  }
};

/// The pairs (i, j) of a tile of queries and a tile of keys. all: every pair is visible, for any i and for j below the
/// key tile's size; otherwise call is_visible(), and compare the two documents if there are any.
struct TileMask {
  int low, high, query_stride, key_stride, keys;
  bool all;
  /// i, j: offsets in the tiles.
  __host__ __device__ bool is_visible(int i, int j) const {
    const int ahead = query_stride * i - key_stride * j;
    return ahead >= low && ahead <= high && j < keys;
  }
};

__host__ __device__ inline int clamped(std::int64_t x) {
  constexpr std::int64_t most = std::int64_t{1} << 30;  // offsets are below 2^28: strides below 2^20, tiles of 256
  return static_cast<int>(x < -most ? -most : x > most ? most : x);
}

/// Returns the mask of two tiles. key_tile: the full size of a tile of keys. documents: the range that was found for
/// one of the two tiles; `ranged` is the other one, which has tokens of that range.
__host__ __device__ inline TileMask tile_mask_of(const AttentionMask& mask, const Tile& queries, const Tile& keys,
                                                 int key_tile, const DocumentRange& documents, const Tile& ranged) {
  const bool all = tile_visibility(mask, queries.positions(), keys.positions()) == TileVisibility::all &&
                   keys.count == key_tile && documents.single && ranged.begin >= documents.begin &&
                   ranged.begin + ranged.count <= documents.end;
  const PositionRange distances = visible_distances(mask);
  const std::int64_t apart = queries.start - keys.start;
  return {
      clamped(distances.first - apart), clamped(distances.last - apart), queries.stride, keys.stride, keys.count, all};
}

/// Returns the next number of a counter from which blocks take their work, the same for all lanes (a warp).
__device__ __forceinline__ int take_work_index(int* counter) {
  int work_index = 0;
  if (threadIdx.x % 32 == 0) work_index = atomicAdd(counter, 1);
  return __shfl_sync(0xFFFFFFFFU, work_index, 0);
}

}  // namespace ringtrain::cuda
