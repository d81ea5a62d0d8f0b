// Attention forward on tensor cores, sm_80 and newer, bfloat16, heads of 64 and 128. FlashAttention-2, Algorithm 1: a
// block of 4 warps holds 128 queries of one head, 32 per warp, and goes through the tiles of 64 keys that they may see,
// from the last downwards. Scores, probabilities, and the output stay in registers; the softmax is in base 2, with the
// scale folded into its exponent.
//
// Keys and values alternate in a ring of three tiles in shared memory: while one is multiplied, the next has arrived
// and the one after it is in transit. One barrier per tile makes its copies visible and signals that the slot of the
// previous tile is free. 80 KiB for heads of 128, two blocks per multiprocessor; 40 KiB for 64.
#include <cmath>

#include "kernels/cuda/attention/attention_calls.cuh"
#include "kernels/cuda/attention/attention_mma.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/tanh.cuh"

namespace ringtrain::cuda {

namespace {

constexpr int query_tile = 128, key_tile = 64, threads = 128, slots = 3;
constexpr int warp_rows = 32, row_tiles = warp_rows / 16;  // of a warp: two products, one above the other
constexpr float log2_e = 1.4426950408889634F, ln_2 = 0.6931471805599453F;

/// The work of a block, in shared memory, because the registers are needed for the state.
struct Work {
  TilesSeen seen;
  Tile tile;                                            // of queries
  std::int64_t o_begin, row_begin;                      // of the tile's first row, in [B, Tq, H, D] and [B, H, Tq]
  std::int64_t kv_begin, kv_stride;                     // of the head in [B, Tk, G, D]; from one token to the next
  const std::int32_t *query_documents, *key_documents;  // of the tile's first token, of the sequence's; or null
  float scale;                                          // of scores, to units of log2
  float inner;                                          // of products, before a softcap's tanh
};

template <int D>
constexpr std::size_t shared_bytes = (query_tile + slots * key_tile) * D * sizeof(bf16) + sizeof(Work);

using Scores = float[row_tiles][key_tile / 8][4];
using Probabilities = std::uint32_t[row_tiles][key_tile / 16][4];  // as the a of the next product

/// A warp's part of the running state: rows lane / 4 + 8 * half of each row tile. m is in units of log2; l is summed
/// over the four lanes of a row only at the end.
template <int D>
struct WarpState {
  float o[row_tiles][D / 8][4];
  float m[row_tiles][2], l[row_tiles][2];
};

/// Returns the offset in the query tile of this lane's row.
__device__ __forceinline__ int row_of(int warp, int tile, int half, int lane) {
  return warp * warp_rows + tile * 16 + half * 8 + lane / 4;
}

template <int D>
__device__ __forceinline__ void load_state(WarpState<D>& state, const ForwardCall<bf16>& call, const Work& work,
                                           int warp, int lane) {
  const std::int64_t stride = call.shape.H * D;
#pragma unroll
  for (int r = 0; r < row_tiles; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row_of(warp, r, half, lane);
      const bool there = !call.first && row < work.tile.count;
      state.m[r][half] = there ? call.m[work.row_begin + row] * log2_e : -INFINITY;
      state.l[r][half] = there && lane % 4 == 0 ? call.l[work.row_begin + row] : 0.0F;
      const float* o = call.o + work.o_begin + row * stride + 2 * (lane % 4);
#pragma unroll
      for (int n = 0; n < D / 8; ++n) {
        const float2 pair = there ? *reinterpret_cast<const float2*>(o + 8 * n) : make_float2(0.0F, 0.0F);
        state.o[r][n][2 * half] = pair.x;
        state.o[r][n][2 * half + 1] = pair.y;
      }
    }
  }
}

template <int D>
__device__ __forceinline__ void multiply_scores(Scores& s, const bf16* q, const bf16* k, int warp, int lane) {
#pragma unroll
  for (int r = 0; r < row_tiles; ++r) {
#pragma unroll
    for (int n = 0; n < key_tile / 8; ++n) s[r][n][0] = s[r][n][1] = s[r][n][2] = s[r][n][3] = 0.0F;
  }
#pragma unroll
  for (int step = 0; step < D / 16; ++step) {
    std::uint32_t a[row_tiles][4];
#pragma unroll
    for (int r = 0; r < row_tiles; ++r) load_a<D>(a[r], q, warp * warp_rows + r * 16, 2 * step, lane);
#pragma unroll
    for (int n = 0; n < key_tile / 16; ++n) {
      std::uint32_t b[4];
      load_b<D>(b, k, n * 16, 2 * step, lane);
#pragma unroll
      for (int r = 0; r < row_tiles; ++r) multiply_pair(s[r][2 * n], s[r][2 * n + 1], a[r], b);
    }
  }
}

/// Turns products into tanh(inner s), which the softcap scales.
__device__ __forceinline__ void cap_scores(Scores& s, float inner) {
#pragma unroll
  for (int r = 0; r < row_tiles; ++r) {
#pragma unroll
    for (int n = 0; n < key_tile / 8; ++n) {
#pragma unroll
      for (int e = 0; e < 4; ++e) s[r][n][e] = tanh_of(s[r][n][e] * inner);
    }
  }
}

/// Sets the scores of pairs that are hidden by their positions to -infinity.
__device__ __forceinline__ void mask_scores(Scores& s, const TileMask& tile_mask, int warp, int lane) {
#pragma unroll
  for (int n = 0; n < key_tile / 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
#pragma unroll
      for (int r = 0; r < row_tiles; ++r) {
        if (!tile_mask.is_visible(row_of(warp, r, e / 2, lane), 8 * n + 2 * (lane % 4) + e % 2)) s[r][n][e] = -INFINITY;
      }
    }
  }
}

/// The same for pairs in two documents. The pointers are those of the tiles' first tokens.
__device__ __forceinline__ void mask_other_documents(Scores& s, const std::int32_t* query_documents, int queries,
                                                     const std::int32_t* key_documents, int keys, int warp, int lane) {
  std::int32_t mine[row_tiles][2];
#pragma unroll
  for (int i = 0; i < 2 * row_tiles; ++i) {
    const int row = row_of(warp, i / 2, i % 2, lane);
    mine[i / 2][i % 2] = row < queries ? __ldg(query_documents + row) : 0;
  }
#pragma unroll
  for (int n = 0; n < key_tile / 8; ++n) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int key = 8 * n + 2 * (lane % 4) + e;
      const std::int32_t document = key < keys ? __ldg(key_documents + key) : 0;
#pragma unroll
      for (int r = 0; r < row_tiles; ++r) {
        if (mine[r][0] != document) s[r][n][e] = -INFINITY;
        if (mine[r][1] != document) s[r][n][2 + e] = -INFINITY;
      }
    }
  }
}

/// p: probabilities of the scores under the new maximum; o and l are rescaled to it. scale: to units of log2.
template <int D>
__device__ __forceinline__ void softmax(Probabilities& p, const Scores& s, WarpState<D>& state, float scale) {
#pragma unroll
  for (int r = 0; r < row_tiles; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float largest = -INFINITY;
#pragma unroll
      for (int n = 0; n < key_tile / 8; ++n) largest = fmaxf(largest, fmaxf(s[r][n][2 * half], s[r][n][2 * half + 1]));
      largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFU, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(0xFFFFFFFFU, largest, 2));
      const float m = fmaxf(state.m[r][half], largest * scale);
      const float base = m == -INFINITY ? 0.0F : m;  // no key so far: every exponent below is -infinity, not NaN
      const float shrink = exp2_approx(state.m[r][half] - base);
      float sum = 0.0F;
#pragma unroll
      for (int n = 0; n < key_tile / 8; ++n) {
        const float first = exp2_approx(fmaf(s[r][n][2 * half], scale, -base));
        const float second = exp2_approx(fmaf(s[r][n][2 * half + 1], scale, -base));
        sum += first + second;
        p[r][n / 2][n % 2 * 2 + half] = rounded_pair(first, second);
      }
      state.m[r][half] = m;
      state.l[r][half] = fmaf(state.l[r][half], shrink, sum);
#pragma unroll
      for (int n = 0; n < D / 8; ++n) {
        state.o[r][n][2 * half] *= shrink;
        state.o[r][n][2 * half + 1] *= shrink;
      }
    }
  }
}

template <int D>
__device__ __forceinline__ void multiply_values(WarpState<D>& state, const Probabilities& p, const bf16* v, int lane) {
#pragma unroll
  for (int step = 0; step < key_tile / 16; ++step) {
#pragma unroll
    for (int n = 0; n < D / 16; ++n) {
      std::uint32_t b[4];
      load_b_transposed<D>(b, v, step * 16, 2 * n, lane);
#pragma unroll
      for (int r = 0; r < row_tiles; ++r) multiply_pair(state.o[r][2 * n], state.o[r][2 * n + 1], p[r][step], b);
    }
  }
}

/// Writes the state back or, after the last block, out and lse. staging: this warp's rows of shared memory.
template <int D>
__device__ __forceinline__ void store_state(WarpState<D>& state, const ForwardCall<bf16>& call, const Work& work,
                                            bf16* staging, int warp, int lane) {
  const std::int64_t stride = call.shape.H * D;
#pragma unroll
  for (int r = 0; r < row_tiles; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = row_of(warp, r, half, lane);
      float l = state.l[r][half];
      l += __shfl_xor_sync(0xFFFFFFFFU, l, 1);
      l += __shfl_xor_sync(0xFFFFFFFFU, l, 2);
      const float m = state.m[r][half] * ln_2;
      const bool mine = row < work.tile.count && lane % 4 == 0;
      if (call.last) {
        const float inverse = l == 0.0F ? 0.0F : 1.0F / l;
        if (mine) call.lse[work.row_begin + row] = l == 0.0F ? -INFINITY : m + logf(l);
#pragma unroll
        for (int n = 0; n < D / 8; ++n) {
          const std::uint32_t pair =
              rounded_pair(state.o[r][n][2 * half] * inverse, state.o[r][n][2 * half + 1] * inverse);
          *reinterpret_cast<std::uint32_t*>(staging + swizzled_offset<D>(row, n) + 2 * (lane % 4)) = pair;
        }
        continue;
      }
      if (mine) {
        call.m[work.row_begin + row] = m;
        call.l[work.row_begin + row] = l;
      }
      if (row >= work.tile.count) continue;
      float* o = call.o + work.o_begin + row * stride + 2 * (lane % 4);
#pragma unroll
      for (int n = 0; n < D / 8; ++n) {
        *reinterpret_cast<float2*>(o + 8 * n) = make_float2(state.o[r][n][2 * half], state.o[r][n][2 * half + 1]);
      }
    }
  }
  if (!call.last) return;
  __syncwarp();
  constexpr int chunks = D / 8, rows_at_once = 32 / chunks;
#pragma unroll
  for (int i = 0; i < warp_rows; i += rows_at_once) {
    const int row = warp * warp_rows + i + lane / chunks, chunk = lane % chunks;
    if (row >= work.tile.count) continue;
    *reinterpret_cast<uint4*>(call.out + work.o_begin + row * stride + 8 * chunk) =
        *reinterpret_cast<const uint4*>(staging + swizzled_offset<D>(row, chunk));
  }
}

/// Fills `work` for this block. Grid: one block for each tile of queries, head, and sequence; the last tiles, which see
/// most under a causal mask, come first. Called by one warp.
template <int D, bool Capped>
__device__ __forceinline__ void take_work(Work& work, const ForwardCall<bf16>& call, int lane) {
  const int H = static_cast<int>(call.shape.H), B = static_cast<int>(call.shape.B), G = static_cast<int>(call.shape.G);
  const int h = static_cast<int>(blockIdx.x % H), b = static_cast<int>(blockIdx.x / H % B);
  const Tile tile = tile_at(call.queries, query_tile, static_cast<int>((gridDim.x - 1 - blockIdx.x) / H / B));
  find_tiles(work.seen, call.queries, tile, call.keys, key_tile, keys_seen_by(call.shape.mask, tile.positions()), b);
  if (lane != 0) return;
  const std::int64_t query_token = std::int64_t{b} * call.queries.tokens,
                     key_token = std::int64_t{b} * call.keys.tokens;
  work.tile = tile;
  work.o_begin = ((query_token + tile.begin) * H + h) * D;
  work.row_begin = (std::int64_t{b} * H + h) * call.queries.tokens + tile.begin;
  work.kv_begin = (key_token * G + h / (H / G)) * D;
  work.kv_stride = std::int64_t{G} * D;
  work.scale = static_cast<float>(Capped ? call.shape.softcap : call.shape.scale) * log2_e;
  if constexpr (Capped) work.inner = static_cast<float>(call.shape.scale / call.shape.softcap);
  const bool documents = call.queries.documents != nullptr && call.keys.documents != nullptr;
  work.query_documents = documents ? call.queries.documents + query_token + tile.begin : nullptr;
  work.key_documents = documents ? call.keys.documents + key_token : nullptr;
}

/// Capped: scores have a softcap.
template <int D, bool Capped>
__global__ void __launch_bounds__(threads, 2) forward_kernel(const __grid_constant__ ForwardCall<bf16> call) {
  bf16* const q_tile = dynamic_shared<bf16>();  // [128, D]
  bf16* const ring = q_tile + query_tile * D;   // 3 of [64, D]
  Work& work = *reinterpret_cast<Work*>(ring + slots * key_tile * D);
  const int warp = static_cast<int>(threadIdx.x) / 32;
  int lane = static_cast<int>(threadIdx.x) % 32;
  if (warp == 0) take_work<D, Capped>(work, call, lane);
  __syncthreads();
  TileCursor cursor = TileCursor::before_last(call.keys, work.seen);
  bool has_keys = cursor.next(work.seen);
  if (!has_keys && !call.first && !call.last) return;

  int slot = 0;  // of the tile that is multiplied next
  const auto copy = [&](const bf16* from, const TileCursor& which, int ahead) {
    const Tile keys = which.tile(call.keys, key_tile);
    copy_tile<key_tile, D, threads>(ring + (slot + ahead) % slots * key_tile * D,
                                    from + work.kv_begin + keys.begin * work.kv_stride, work.kv_stride, keys.count);
  };
  if (has_keys) {
    copy_tile<query_tile, D, threads>(q_tile, call.q + work.o_begin, call.shape.H * D, work.tile.count);
    copy(call.k, cursor, 0);
    cp_async_commit();
    copy(call.v, cursor, 1);
    cp_async_commit();
  }
  WarpState<D> state;
  load_state<D>(state, call, work, warp, lane);

  while (has_keys) {
    forget(lane);
    cp_async_wait<1>();
    __syncthreads();  // the keys have arrived; all threads are done with the previous values
    TileCursor next = cursor;
    const bool another = next.next(work.seen);
    if (another) copy(call.k, next, 2);
    cp_async_commit();
    Scores s;
    multiply_scores<D>(s, q_tile, ring + slot * key_tile * D, warp, lane);
    if constexpr (Capped) cap_scores(s, work.inner);
    const Tile keys = cursor.tile(call.keys, key_tile);
    const TileMask tile_mask = tile_mask_of(call.shape.mask, work.tile, keys, key_tile, work.seen.documents, keys);
    if (!tile_mask.all) {
      mask_scores(s, tile_mask, warp, lane);
      if (work.key_documents != nullptr) {
        mask_other_documents(s, work.query_documents, work.tile.count, work.key_documents + keys.begin, keys.count,
                             warp, lane);
      }
    }
    Probabilities p;
    softmax<D>(p, s, state, work.scale);
    slot = (slot + 1) % slots;

    cp_async_wait<1>();
    __syncthreads();  // the values have arrived; all threads are done with the keys
    if (another) copy(call.v, next, 2);
    cp_async_commit();
    multiply_values<D>(state, p, ring + slot * key_tile * D, lane);
    slot = (slot + 1) % slots;
    cursor = next;
    has_keys = another;
  }
  store_state<D>(state, call, work, q_tile, warp, lane);
}

template <int D, bool Capped>
void launch_forward(Context& context, const ForwardCall<bf16>& call) {
  const std::int64_t blocks = tile_count(call.queries, query_tile) * call.shape.B * call.shape.H;
  launch<forward_kernel<D, Capped>>(context, dim3(blocks_for(blocks, 1)), dim3(threads), shared_bytes<D>, call);
}

}  // namespace

void tensor_forward(Context& context, const ForwardCall<bf16>& call) {
  if (call.shape.softcap > 0) {
    return call.shape.D == 64 ? launch_forward<64, true>(context, call) : launch_forward<128, true>(context, call);
  }
  call.shape.D == 64 ? launch_forward<64, false>(context, call) : launch_forward<128, false>(context, call);
}

}  // namespace ringtrain::cuda
