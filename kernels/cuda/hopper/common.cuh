// What forward and backward for Hopper share on the device: places in a ring of buffers, the order in which blocks take
// tiles, ranges of visible elements in a row of a tile, and rounding to fragments.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

#include "kernels/cuda/attention_mask.cuh"
#include "kernels/cuda/hopper/wgmma.cuh"

namespace ringtrain::cuda::hopper {

inline constexpr int warpgroup = 128;     // threads
inline constexpr int group_rows = 64;     // rows of a product that a warpgroup makes
inline constexpr int block_columns = 64;  // bfloat16 columns of a swizzled block: 128 bytes
inline constexpr int row_bytes = 128;     // a block's row
inline constexpr float log2_of_e = 1.44269504088896340736F;
inline constexpr float ln_of_2 = 0.69314718055994530942F;

/// Barriers of a ring of buffers: the one who fills waits for empty, who uses it for full.
template <int Stages>
struct RingBarriers {
  std::uint64_t full[Stages], empty[Stages];
  __device__ void init(std::uint32_t fillers, std::uint32_t users) {
    for (int stage = 0; stage < Stages; ++stage) {
      mbarrier_init(&full[stage], fillers);
      mbarrier_init(&empty[stage], users);
    }
  }
};

/// Where a thread stands in such a ring.
template <int Stages>
struct RingPlace {
  int stage = 0;
  std::uint32_t round = 0;  // parity
  __device__ void advance() {
    if (++stage == Stages) {
      stage = 0;
      round ^= 1;
    }
  }
  __device__ void wait_full(RingBarriers<Stages>& ring) const { mbarrier_wait(&ring.full[stage], round); }
  __device__ void wait_empty(RingBarriers<Stages>& ring) const { mbarrier_wait(&ring.empty[stage], round ^ 1); }
};

/// Order of tiles: `heads` heads at a time, so that what they share stays in the second cache; of these, tile by tile.
struct TileOrder {
  int tiles, heads, all_heads;
  struct Choice {
    int tile, head;
  };
  __device__ int count() const { return tiles * all_heads; }
  __device__ Choice operator[](int ticket) const {
    const int section = ticket / (tiles * heads), first = section * heads;
    const int width = all_heads - first < heads ? all_heads - first : heads;
    const int rest = ticket - section * tiles * heads;
    return {rest / width, first + rest % width};
  }
};

/// Return the positions that every query of a tile sees, and those of queries that see every key of a tile.
__device__ __forceinline__ Interval keys_seen_by_all(const AttentionMask& mask, const Tile& queries) {
  const std::int64_t reach = reach_of(mask);
  return {queries.last() - reach, mask.causal ? queries.start : queries.start + reach};
}
__device__ __forceinline__ Interval queries_that_see_all(const AttentionMask& mask, const Tile& keys) {
  const std::int64_t reach = reach_of(mask);
  return {mask.causal ? keys.last() : keys.last() - reach, keys.start + reach};
}

/// A step of a walk: a tile of `Size` tokens from `begin` on, the index-th of its segment. masked: some pairs are not
/// visible, or the tile is not full.
struct Step {
  int segment, index, begin;
  bool masked;
};

/// Visits the same tiles as TileWalk, in the same order, and tells which need no mask. What it costs falls to the first
/// tile of a segment: those without a mask are a range, as those that are seen. Few operations a step, because one warp
/// takes all steps of a block.
template <int Size>
class StepWalk {
 public:
  /// some, all: positions seen by any, by every token of the other tile; `documents` is the other tile's range. whole:
  /// whether the other tile is full.
  __device__ StepWalk(const TokenMap& map, const Interval& some, const Interval& all, const DocumentRange& documents,
                      bool whole)
      : map_(&map), some_(some), all_(all), documents_(documents), segment_(map.segments), whole_(whole) {}

  /// Return whether there is another tile, and if so, which.
  __device__ bool next(Step& step) {
    while (index_ < first_) {
      if (segment_ == 0) return false;
      enter(--segment_);
    }
    step = {segment_, index_, begin_, index_ < first_unmasked_ || index_ > last_unmasked_};
    --index_;
    begin_ -= Size;
    return true;
  }

 private:
  __device__ void enter(int segment) {
    const TileRange seen = tiles_seen(*map_, Size, segment, some_, documents_);
    first_ = seen.first, index_ = seen.last;
    if (seen.empty()) return;
    const TokenMap::Run& run = map_->runs[segment];
    begin_ = run.begin + index_ * Size;
    first_unmasked_ = 0, last_unmasked_ = -1;
    // Positions from the tile's first to its last, relative to the segment's start, in tiles.
    const std::int64_t low = all_.first - run.start,
                       high = all_.last - run.start - std::int64_t{run.stride} * (Size - 1);
    if (!whole_ || !documents_.one || high < 0) return;
    std::int64_t from = low <= 0 ? 0 : (low + std::int64_t{run.stride} * Size - 1), to = high;
    if (run.stride == 1) {
      from /= Size, to /= Size;
    } else {
      from /= std::int64_t{run.stride} * Size, to /= std::int64_t{run.stride} * Size;
    }
    const int full = run.count / Size, before = documents_.begin - run.begin, behind = documents_.end - run.begin;
    const int from_document = before <= 0 ? 0 : (before + Size - 1) / Size;
    const int to_document = behind < Size ? 0 : behind / Size;  // tiles
    first_unmasked_ = from > full ? full : static_cast<int>(from);
    if (first_unmasked_ < from_document) first_unmasked_ = from_document;
    last_unmasked_ = full - 1;
    if (to < last_unmasked_) last_unmasked_ = static_cast<int>(to);
    if (to_document - 1 < last_unmasked_) last_unmasked_ = to_document - 1;
  }

  const TokenMap* map_;
  Interval some_, all_;
  DocumentRange documents_;
  int segment_, index_ = -1, first_ = 0, begin_ = 0, first_unmasked_ = 0, last_unmasked_ = -1;
  bool whole_;
};

/// Return the next ticket, the same for all lanes (a warp).
__device__ __forceinline__ int take_ticket(int* counter) {
  int ticket = 0;
  if (threadIdx.x % 32 == 0) ticket = atomicAdd(counter, 1);
  return __shfl_sync(0xFFFFFFFFU, ticket, 0);
}

/// Return x, which is the same in all lanes; the compiler then knows (a warp).
__device__ __forceinline__ int uniform(int x) {
  return __shfl_sync(0xFFFFFFFFU, x, 0);
}

/// Elements [from, to) of a row or column of a tile.
struct Visible {
  int from, to;
  /// Return whether element `offset` behind `base` is among them.
  __device__ bool has(int index) const {
    return static_cast<unsigned>(index - from) < static_cast<unsigned>(to - from);
  }
};

/// Narrows a range of a tile's tokens to those of one document; `documents` are the tile's.
__device__ __forceinline__ Visible of_document(Visible range, const std::int32_t* documents, std::int32_t document) {
  int low = range.from, high = range.to;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (__ldg(documents + middle) < document)
      low = middle + 1;
    else
      high = middle;
  }
  const int from = low;
  high = range.to;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (__ldg(documents + middle) <= document)
      low = middle + 1;
    else
      high = middle;
  }
  return {from, low};
}

/// Return the keys that query i of a tile sees by position, and the queries, of `queries` ones, that see key j.
__device__ __forceinline__ Visible keys_of(const Sight& sight, int i) {
  const int last = sight.query_stride * i - sight.low, before = sight.query_stride * i - sight.high;
  const int from = before <= 0 ? 0
                               : static_cast<int>(static_cast<unsigned>(before + sight.key_stride - 1) /
                                                  static_cast<unsigned>(sight.key_stride));
  const int to =
      last < 0 ? 0 : static_cast<int>(static_cast<unsigned>(last) / static_cast<unsigned>(sight.key_stride)) + 1;
  const int end = to < sight.keys ? to : sight.keys;
  return {from < end ? from : end, end};
}
__device__ __forceinline__ Visible queries_of(const Sight& sight, int j, int queries) {
  if (j >= sight.keys) return {0, 0};
  const int first = sight.low + sight.key_stride * j, last = sight.high + sight.key_stride * j;
  const int from = first <= 0 ? 0
                              : static_cast<int>(static_cast<unsigned>(first + sight.query_stride - 1) /
                                                 static_cast<unsigned>(sight.query_stride));
  const int to =
      last < 0 ? 0 : static_cast<int>(static_cast<unsigned>(last) / static_cast<unsigned>(sight.query_stride)) + 1;
  const int end = to < queries ? to : queries;
  return {from < end ? from : end, end};
}

/// Return two numbers rounded to bfloat16, the first in the lower half.
__device__ __forceinline__ std::uint32_t rounded_pair(float first, float second) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(first, second);
  std::uint32_t bits;
  std::memcpy(&bits, &pair, sizeof(bits));
  return bits;
}

/// Rounds sums d[64, N] to the N / 16 fragments of a next product's first operand.
template <int N>
__device__ __forceinline__ void round_to_fragments(std::uint32_t (&fragments)[N / 16][4], const float (&d)[N / 2]) {
#pragma unroll
  for (int k = 0; k < N / 16; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) fragments[k][i] = rounded_pair(d[8 * k + 2 * i], d[8 * k + 2 * i + 1]);
  }
}

}  // namespace ringtrain::cuda::hopper
