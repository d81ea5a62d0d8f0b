// Device code that forward and backward for Hopper share: stages of a pipeline of buffers, the order in which blocks
// take tiles, ranges of visible elements in a row of a tile, and rounding to fragments.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/attention/attention_mask.cuh"
#include "kernels/cuda/attention/hopper/choices.h"
#include "kernels/cuda/attention/hopper/tile_order.h"
#include "kernels/cuda/attention/hopper/wgmma.cuh"
#include "kernels/cuda/bounded_wait.cuh"

namespace ringtrain::cuda::hopper {

inline constexpr int warpgroup = 128;                       // threads
inline constexpr int group_rows = 64;                       // rows of a product that a warpgroup computes
inline constexpr int block_columns = 64;                    // bfloat16 columns of a swizzled block: 128 bytes
inline constexpr int row_bytes = 128;                       // a block's row
inline constexpr std::size_t max_shared_bytes = 227 << 10;  // of a block; a multiprocessor has 1 KiB more
inline constexpr float log2_of_e = 1.44269504088896340736F;
inline constexpr float ln_of_2 = 0.69314718055994530942F;

/// Returns whether a block of one loading warpgroup and `groups` computing ones may divide its registers this way.
/// Together they may have no more than the block gets at launch: per thread, as many as a multiprocessor's 65536 allow,
/// in multiples of eight. Otherwise registers_increase never returns.
constexpr bool registers_suffice(int loading, int computing, int groups) {
  const int at_launch = 65536 / ((1 + groups) * warpgroup) / 8 * 8;
  return loading + groups * computing <= (1 + groups) * at_launch;
}

/// The pipelines of both kernels: buffers that some warps fill and others use, stage by stage.
enum class Pipeline { forward_queries, forward_keys, forward_values, backward_keys, backward_queries, backward_dq };

/// Returns the names of a wait in one of them. full: for a buffer that is full, otherwise for an empty one.
__device__ __forceinline__ WaitNames wait_names(Pipeline pipeline, bool full) {
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const char* const role = warp >= 4 ? "computing" : warp == 0 ? "loader" : "adder of dq";
  const char* const kernel =
      pipeline < Pipeline::backward_keys ? "attention forward (Hopper)" : "attention backward (Hopper)";
  switch (pipeline) {
    case Pipeline::forward_queries:
    case Pipeline::backward_queries:
      return {kernel, full ? "a full buffer of queries" : "an empty buffer of queries", role};
    case Pipeline::forward_keys:
    case Pipeline::backward_keys:
      return {kernel, full ? "a full buffer of keys" : "an empty buffer of keys", role};
    case Pipeline::forward_values:
      return {kernel, full ? "a full buffer of values" : "an empty buffer of values", role};
    case Pipeline::backward_dq:
      return {kernel, full ? "a full buffer of dq" : "an empty buffer of dq", role};
  }
  return {"", "", role};
}

/// Returns when the phase with this parity has ended. names: a function.
template <class Names>
__device__ __forceinline__ void wait_for_phase(std::uint64_t* barrier, std::uint32_t parity,
                                               [[maybe_unused]] const Names& names, [[maybe_unused]] int stage) {
#if defined(RINGTRAIN_BOUNDED_WAITS)
  wait_within_bounds([&] { return mbarrier_try_wait(barrier, parity); },
                     [&] {
                       return VainWait{names(), "stage", "phase of parity", stage, static_cast<int>(parity)};
                     });
#else
  mbarrier_wait(barrier, parity);
#endif
}

/// Barriers of a pipeline: warps that fill a buffer wait until it is empty, and warps that use it until it is full.
template <int Stages, Pipeline Of>
struct PipelineBarriers {
  std::uint64_t full[Stages], empty[Stages];
  __device__ void init(std::uint32_t fillers, std::uint32_t users) {
    for (int stage = 0; stage < Stages; ++stage) {
      mbarrier_init(&full[stage], fillers);
      mbarrier_init(&empty[stage], users);
    }
  }
};

/// A thread's position in such a pipeline.
template <int Stages>
struct PipelineState {
  int stage = 0;
  std::uint32_t round = 0;  // parity
  __device__ void advance() {
    if (++stage == Stages) {
      stage = 0;
      round ^= 1;
    }
  }
  template <Pipeline Of>
  __device__ void wait_full(PipelineBarriers<Stages, Of>& barriers) const {
    wait_for_phase(
        &barriers.full[stage], round, [] { return wait_names(Of, true); }, stage);
  }
  template <Pipeline Of>
  __device__ void wait_empty(PipelineBarriers<Stages, Of>& barriers) const {
    wait_for_phase(
        &barriers.empty[stage], round ^ 1, [] { return wait_names(Of, false); }, stage);
  }
};

/// Tells the warps that fill a buffer that this warp is done with it.
__device__ __forceinline__ void release(std::uint64_t* empty) {
  if (threadIdx.x % 32 == 0) mbarrier_arrive(empty);
}

/// Starts copies of `rows` tokens of a head of D elements, beginning with `token`: blocks of 64 columns (one thread).
template <int D>
__device__ __forceinline__ void load_blocks(unsigned char* shared, const CUtensorMap* map, std::uint64_t* barrier,
                                            int rows, int head, int token, int b, CacheHint hint) {
#pragma unroll
  for (int block = 0; block < D / block_columns; ++block) {
    tma_load_4d(shared + block * rows * row_bytes, map, barrier, block * block_columns, head, token, b, hint);
  }
}

/// The first arguments of the kernels of forward and backward. The launch sets the tiles of each side and their order.
struct CallArguments {
  TokenMap queries, keys;
  AttentionMask mask;
  TileOrder order;
  int H, G;
  float scale;
  CacheHint once, often;  // for data that only this block reads, and for data that all blocks of a head read
};
inline CallArguments call_arguments(const AttentionShape& shape, const AttentionTokens& queries,
                                    const AttentionTokens& keys) {
  return {token_map(queries),
          token_map(keys),
          shape.mask,
          {},
          static_cast<int>(shape.H),
          static_cast<int>(shape.G),
          static_cast<float>(shape.scale),
          choices().cache_hints ? CacheHint::first : CacheHint::normal,
          choices().cache_hints ? CacheHint::last : CacheHint::normal};
}

/// Returns the tiles of a segment that need no mask: full ones whose tokens all see, or are seen by, every token of the
/// other tile. positions: those that see, or are seen by, all of it; documents: its range. A range like that of
/// tiles_seen, computed once for all steps.
__device__ inline TileRange tiles_unmasked(const TokenMap& map, int size, int segment, const PositionRange& positions,
                                           const DocumentRange& documents) {
  constexpr TileRange none{0, -1};
  const TokenMap::Run& run = map.runs[segment];
  const std::int64_t tile = std::int64_t{run.stride} * size, inside = tile - run.stride;
  // Relative to the segment's start: the first and last positions at which a tile may begin.
  const std::int64_t low = positions.first - run.start, high = positions.last - run.start - inside;
  if (high < 0 || !documents.single) return none;
  const std::int64_t from = low <= 0 ? 0 : (low + tile - 1) / tile, to = high / tile;
  const int before = documents.begin - run.begin, behind = documents.end - run.begin;
  int first = before <= 0 ? 0 : (before + size - 1) / size, last = (behind < run.count ? behind : run.count) / size - 1;
  if (from > last || behind < size) return none;
  if (from > first) first = static_cast<int>(from);
  if (to < last) last = static_cast<int>(to);
  return {first, last};
}

/// The loading warp's information about the current tile: which tiles of the other side it sees, and which without a
/// mask.
struct Steps {
  TilesSeen seen;
  TileRange unmasked[most_segments];
  __device__ bool masked(const TileCursor& at) const {
    return at.index < unmasked[at.segment].first || at.index > unmasked[at.segment].last;
  }
};

/// Fills `steps` for a tile of `mine` in sequence b. `some`, `all`: the positions that any, or every, token of it sees.
/// whole: whether tiles may omit the mask (one warp, which is the only reader).
__device__ inline void find_steps(Steps& steps, const TokenMap& mine, const Tile& tile, const TokenMap& other, int size,
                                  const PositionRange& some, const PositionRange& all, bool whole, int b) {
  __syncwarp();  // the previous tile's steps have been read
  find_tiles(steps.seen, mine, tile, other, size, some, b);
  __syncwarp();
  const int lane = static_cast<int>(threadIdx.x % 32);
  if (lane < other.segments) {
    steps.unmasked[lane] = whole ? tiles_unmasked(other, size, lane, all, steps.seen.documents) : TileRange{0, -1};
  }
  __syncwarp();
}

/// Returns x, which is the same in all lanes, and lets the compiler know (a warp).
__device__ __forceinline__ int uniform(int x) {
  return __shfl_sync(0xFFFFFFFFU, x, 0);
}

/// Elements [from, to) of a row or column of a tile.
struct Visible {
  int from, to;
  /// Returns whether element `index` is in the range.
  __device__ bool has(int index) const {
    return static_cast<unsigned>(index - from) < static_cast<unsigned>(to - from);
  }
};

/// Returns the first token of [low, high) with the given document or a later one; beyond: with a later one.
template <bool beyond>
__device__ __forceinline__ int first_of_document(const std::int32_t* documents, int low, int high,
                                                 std::int32_t document) {
  while (low < high) {
    const int middle = (low + high) / 2;
    const std::int32_t here = __ldg(documents + middle);
    if (beyond ? here <= document : here < document) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/// Narrows a range of a tile's tokens to those of one document; `documents` are the tile's.
__device__ __forceinline__ Visible of_document(Visible range, const std::int32_t* documents, std::int32_t document) {
  const int from = first_of_document<false>(documents, range.from, range.to, document);
  return {from, first_of_document<true>(documents, from, range.to, document)};
}

/// Returns which of `count` tokens, at 0, stride, 2 stride, ..., are in [first, last].
__device__ __forceinline__ Visible tokens_between(int first, int last, int stride, int count) {
  const auto divided = [&](int x) {
    return static_cast<int>(static_cast<unsigned>(x) / static_cast<unsigned>(stride));
  };
  const int from = first <= 0 ? 0 : divided(first + stride - 1), to = last < 0 ? 0 : divided(last) + 1;
  const int end = to < count ? to : count;
  return {from < end ? from : end, end};
}

/// Returns the keys that query i of a tile sees by position, and the queries, of `queries` ones, that see key j.
__device__ __forceinline__ Visible keys_of(const TileMask& tile_mask, int i) {
  const int query = tile_mask.query_stride * i;
  return tokens_between(query - tile_mask.high, query - tile_mask.low, tile_mask.key_stride, tile_mask.keys);
}
__device__ __forceinline__ Visible queries_of(const TileMask& tile_mask, int j, int queries) {
  if (j >= tile_mask.keys) return {0, 0};
  const int key = tile_mask.key_stride * j;
  return tokens_between(tile_mask.low + key, tile_mask.high + key, tile_mask.query_stride, queries);
}

/// Rounds sums d[64, N] to the N / 16 fragments of the first operand of a following product.
template <int N>
__device__ __forceinline__ void round_to_fragments(std::uint32_t (&fragments)[N / 16][4], const float (&d)[N / 2]) {
#pragma unroll
  for (int k = 0; k < N / 16; ++k) {
#pragma unroll
    for (int i = 0; i < 4; ++i) fragments[k][i] = rounded_pair(d[8 * k + 2 * i], d[8 * k + 2 * i + 1]);
  }
}

/// Returns the bits that are set in any of the numbers.
template <int N>
__device__ __forceinline__ std::uint32_t all_bits(const float (&x)[N]) {
  std::uint32_t bits = 0;
#pragma unroll
  for (int i = 0; i < N; ++i) bits |= __float_as_uint(x[i]);
  return bits;
}

/// Transposes the words of four threads: thread t of four consecutive ones gets word t of each.
__device__ __forceinline__ void transpose_among_four(std::uint32_t (&words)[4]) {
  const bool odd = threadIdx.x % 2 != 0, upper = threadIdx.x % 4 >= 2;
  const auto exchange = [](std::uint32_t& low, std::uint32_t& high, bool keeps_high, int with) {
    const std::uint32_t other = __shfl_xor_sync(0xFFFFFFFFU, keeps_high ? low : high, with);
    (keeps_high ? low : high) = other;
  };
  exchange(words[0], words[1], odd, 1);
  exchange(words[2], words[3], odd, 1);
  exchange(words[0], words[2], upper, 2);
  exchange(words[1], words[3], upper, 2);
}

}  // namespace ringtrain::cuda::hopper
