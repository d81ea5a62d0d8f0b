// The general attention path: any head size up to 256, float32 or bfloat16 tensors, all arithmetic in float32 without
// tensor cores. For exactness and odd shapes, not for speed. Blocks of 256 threads take a tile of rows (queries in
// forward and for dq, keys for dk and dv) and go through the tiles of the other side; the threads of a row share its
// head elements. No element is added to by two blocks, so bits are the same in every run.
#pragma once

#include <cmath>

#include "kernels/cuda/attention/attention_calls.cuh"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/tanh.cuh"

namespace ringtrain::cuda::general {

/// Heads of up to MaxD elements; tiles of Tile queries by Tile keys.
template <int MaxD_, int Tile_>
struct Cut {
  static constexpr int MaxD = MaxD_, tile = Tile_, threads = 256;
  static constexpr int per_row = threads / tile;   // threads of a row
  static constexpr int scores = tile / per_row;    // of a thread: columns sub + per_row * i
  static constexpr int elements = MaxD / per_row;  // of a thread: sub + per_row * i
  static constexpr int stride = MaxD + 1;          // of a row in shared memory: odd, so that columns cause no conflicts
  static_assert(per_row <= 32 && 32 % per_row == 0 && scores >= 1);
};

template <class C>
using Rows = float[C::tile][C::stride];
template <class C>
using Pairs = float[C::tile][C::tile + 1];

/// The position of this thread: thread number `sub` of row `row` of its tile.
template <class C>
struct ThreadPosition {
  int row = static_cast<int>(threadIdx.x) / C::per_row, sub = static_cast<int>(threadIdx.x) % C::per_row;
};

/// Fills a tile from rows `stride` apart; with zeros from row `count`. Called by the whole block.
template <class C, class T>
__device__ __forceinline__ void load_rows(Rows<C>& to, const T* from, std::int64_t stride, int count, int D) {
  for (int i = static_cast<int>(threadIdx.x); i < C::tile * D; i += C::threads) {
    const int row = i / D, d = i % D;
    to[row][d] = row < count ? widened(from[row * stride + d]) : 0.0F;
  }
}

__device__ __forceinline__ float dot(const float* x, const float* y, int D) {
  float sum = 0.0F;
  for (int d = 0; d < D; ++d) sum = fmaf(x[d], y[d], sum);
  return sum;
}

/// sum[i] += sum over j < tile of weights[j] * rows[j][sub + per_row * i]
template <class C>
__device__ __forceinline__ void add_weighted(float (&sum)[C::elements], const float* weights, const Rows<C>& rows,
                                             int sub, int D) {
  for (int j = 0; j < C::tile; ++j) {
    const float weight = weights[j];
#pragma unroll
    for (int i = 0; i < C::elements; ++i) {
      const int d = sub + C::per_row * i;
      if (d < D) sum[i] = fmaf(weight, rows[j][d], sum[i]);
    }
  }
}

/// Returns whether query i of one tile sees key j of another. The documents are those of the tiles' first tokens, or
/// null.
__device__ __forceinline__ bool visible(const TileMask& tile_mask, int i, int j, int queries,
                                        const std::int32_t* query_documents, const std::int32_t* key_documents) {
  if (tile_mask.all) return true;
  if (!tile_mask.is_visible(i, j)) return false;
  return query_documents == nullptr || i >= queries || __ldg(query_documents + i) == __ldg(key_documents + j);
}

/// Returns the document ids starting at a token; null if there are none.
__device__ __forceinline__ const std::int32_t* documents_at(const TokenMap& map, int b, int token) {
  return map.documents == nullptr ? nullptr : map.documents + std::int64_t{b} * map.tokens + token;
}

/// The work of a block that holds queries: a tile of one head and sequence.
struct QueryWork {
  int H, G, D, b, g;
  Tile tile;
  std::int64_t row, element;  // of the tile's first query, in [B, H, Tq] and [B, Tq, H, D]
};

/// Returns the work of this block, the last tiles first, and fills `seen` with the tiles of keys that it sees, to be
/// read after a barrier. Grid: one block for each tile of queries, head, and sequence. Call: ForwardCall or
/// BackwardCall.
template <class C, class Call>
__device__ __forceinline__ QueryWork take_queries(const Call& call, TilesSeen& seen) {
  const int H = static_cast<int>(call.shape.H), G = static_cast<int>(call.shape.G), D = static_cast<int>(call.shape.D);
  const int B = static_cast<int>(call.shape.B);
  const int h = static_cast<int>(blockIdx.x % H), b = static_cast<int>(blockIdx.x / H % B);
  const Tile tile = tile_at(call.queries, C::tile, static_cast<int>((gridDim.x - 1 - blockIdx.x) / H / B));
  if (threadIdx.x < 32) {
    find_tiles(seen, call.queries, tile, call.keys, C::tile, keys_seen_by(call.shape.mask, tile.positions()), b);
  }
  const std::int64_t row = (std::int64_t{b} * H + h) * call.queries.tokens + tile.begin;
  return {H, G, D, b, h / (H / G), tile, row, ((std::int64_t{b} * call.queries.tokens + tile.begin) * H + h) * D};
}

/// Scores of a call: scale q.k, or softcap tanh(scale q.k / softcap) if Capped.
template <bool Capped>
struct Scores {
  float scale, softcap = 0.0F, inverse = 0.0F;
  explicit __device__ Scores(const AttentionShape& shape) : scale(static_cast<float>(shape.scale)) {
    if constexpr (Capped) {
      softcap = static_cast<float>(shape.softcap);
      inverse = static_cast<float>(shape.scale / shape.softcap);
    }
  }
  /// Returns tanh(scale q.k / softcap) if Capped, otherwise q.k.
  __device__ __forceinline__ float bent(float product) const {
    if constexpr (Capped) return tanh_of(product * inverse);
    return product;
  }
  __device__ __forceinline__ float factor() const { return Capped ? softcap : scale; }  // of bent() in the score
  /// Returns d score / d (scale q.k).
  __device__ __forceinline__ float slope(float bent) const { return Capped ? fmaf(-bent, bent, 1.0F) : 1.0F; }
};

/// Calls body.template operator()<Capped>().
template <class Body>
void with_softcap(const AttentionShape& shape, Body&& body) {
  if (shape.softcap > 0) return body.template operator()<true>();
  body.template operator()<false>();
}

/// Calls body.template operator()<Cut>() with the smallest cut that holds heads of D elements.
template <class Body>
void with_cut(std::int64_t D, Body&& body) {
  if (D <= 64) return body.template operator()<Cut<64, 32>>();
  if (D <= 128) return body.template operator()<Cut<128, 32>>();
  body.template operator()<Cut<256, 16>>();
}

}  // namespace ringtrain::cuda::general
