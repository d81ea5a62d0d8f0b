// Attention backward on tensor cores, sm_80 and newer, bfloat16, heads of 64 and 128. FlashAttention-2, Algorithm 2: a
// block holds a tile of keys of one key/value head, 16 per warp, and goes through the query tiles that see them, from
// the last downwards, for every query head of the group in turn. So dk and dv have one owner, which sums them in
// registers and adds them once to global memory. Every block that a query tile sees adds to its dq with atomics (in a
// fixed order if the call is deterministic: dq_semaphore.cuh).
//
// Scores are computed transposed, keys by queries. So the probabilities and dS in a warp's registers are already the
// left operands of its dv and dk, and only dS goes through shared memory, for dq, which sums over all keys. Queries and
// dout of the next step are copied while this one is computed.
#include <cmath>

#include "kernels/cuda/attention/attention_calls.cuh"
#include "kernels/cuda/attention/attention_mma.cuh"
#include "kernels/cuda/attention/dq_semaphore.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/tanh.cuh"

namespace ringtrain::cuda {

namespace {

constexpr float log2_e = 1.4426950408889634F;

/// KeyTile keys by QueryTile queries, heads of D. Capped: scores have a softcap.
template <int D_, int KeyTile, int QueryTile, bool Capped_ = false>
struct Cut {
  static constexpr bool Capped = Capped_;
  static constexpr int D = D_, key_tile = KeyTile, query_tile = QueryTile;
  static constexpr int warps = KeyTile / 16, threads = 32 * warps;
  // For dq of a query tile, a warp takes 16 queries and dq_columns of D.
  static constexpr int dq_rows = QueryTile / 16, dq_columns = D / (warps / dq_rows);
  static_assert(warps % dq_rows == 0 && dq_columns % 16 == 0 && threads >= 2 * QueryTile);
};

/// The work of a block, in shared memory, because the registers are needed for the sums.
struct Work {
  TilesSeen seen;  // of the queries
  Tile tile;       // of keys
  TileCursor cursor;
  int b, g;
  std::int64_t kv_begin;                                // of the tile's first key in [B, Tk, G, D]
  const std::int32_t *query_documents, *key_documents;  // of the sequence's first token, of the tile's; or null
  float scale;                                          // of products
  float inner, outer;                                   // of products within a softcap's tanh, and of the tanh
};

template <class C>
struct Shared {
  bf16 k[C::key_tile * C::D], v[C::key_tile * C::D];
  bf16 q[2][C::query_tile * C::D], dout[2][C::query_tile * C::D];
  bf16 ds[C::key_tile * C::query_tile];  // keys by queries
  float rows[2][2 * C::query_tile];      // lse in units of log2, then delta
  Work work;
};

/// Fills `work`. work_index: selects the key tile, head, and sequence; those of the first keys come first.
template <class C>
__device__ __forceinline__ void take_work(Work& work, const BackwardCall<bf16>& call, int work_index, int lane) {
  const int B = static_cast<int>(call.shape.B), G = static_cast<int>(call.shape.G);
  const int g = work_index % G, b = work_index / G % B;
  const Tile tile = tile_at(call.keys, C::key_tile, work_index / G / B);
  find_tiles(work.seen, call.keys, tile, call.queries, C::query_tile,
             queries_that_see(call.shape.mask, tile.positions()), b);
  if (lane != 0) return;
  const std::int64_t query_token = std::int64_t{b} * call.queries.tokens,
                     key_token = std::int64_t{b} * call.keys.tokens + tile.begin;
  const bool documents = call.queries.documents != nullptr && call.keys.documents != nullptr;
  work.tile = tile;
  work.cursor = {tile.segment, tile.index};
  work.b = b;
  work.g = g;
  work.kv_begin = (key_token * G + g) * C::D;
  work.query_documents = documents ? call.queries.documents + query_token : nullptr;
  work.key_documents = documents ? call.keys.documents + key_token : nullptr;
  work.scale = static_cast<float>(call.shape.scale);
  if constexpr (C::Capped) {
    work.inner = static_cast<float>(call.shape.scale / call.shape.softcap);
    work.outer = static_cast<float>(call.shape.softcap);
  }
}

/// Returns the head's row of [B, H, Tq] and the element of [B, Tq, H, D] at which the queries of a step begin.
struct QueryOffsets {
  std::int64_t row, element;
};
template <class C>
__device__ __forceinline__ QueryOffsets query_offsets(const BackwardCall<bf16>& call, const Work& work, int head,
                                                      const Tile& queries) {
  const std::int64_t H = call.shape.H, T = call.queries.tokens, h = work.g * (H / call.shape.G) + head;
  return {(work.b * H + h) * T + queries.begin, ((work.b * T + queries.begin) * H + h) * C::D};
}

/// Starts copying queries and dout of a step, and returns this thread's lse or delta of the step.
template <class C>
__device__ __forceinline__ float fetch(Shared<C>& shared, const BackwardCall<bf16>& call, const GroupCursor& step,
                                       int stage) {
  const Tile queries = step.queries.tile(call.queries, C::query_tile);
  const QueryOffsets at = query_offsets<C>(call, shared.work, step.head, queries);
  const std::int64_t stride = call.shape.H * C::D;
  copy_tile<C::query_tile, C::D, C::threads>(shared.q[stage], call.q + at.element, stride, queries.count);
  copy_tile<C::query_tile, C::D, C::threads>(shared.dout[stage], call.dout + at.element, stride, queries.count);
  const int thread = static_cast<int>(threadIdx.x), row = thread % C::query_tile;
  const bool there = row < queries.count;
  if (thread < C::query_tile) {
    // Rows that are missing or have seen no key: an infinite lse makes every probability 0.
    const float lse = there ? __ldg(call.lse + at.row + row) : -INFINITY;
    return lse == -INFINITY ? INFINITY : lse * log2_e;
  }
  return thread < 2 * C::query_tile && there ? __ldg(call.delta + at.row + row) : 0.0F;
}

template <class C>
__device__ __forceinline__ void store_rows(Shared<C>& shared, float value, int stage) {
  if (threadIdx.x < 2 * C::query_tile) shared.rows[stage][threadIdx.x] = value;
}

/// s[16 keys of this warp, query_tile] = keys queries^T, for tiles [key_tile, D] and [query_tile, D].
template <class C>
__device__ __forceinline__ void multiply_transposed(float (&s)[C::query_tile / 8][4], const bf16* keys,
                                                    const bf16* queries, int warp, int lane) {
#pragma unroll
  for (int n = 0; n < C::query_tile / 8; ++n) s[n][0] = s[n][1] = s[n][2] = s[n][3] = 0.0F;
#pragma unroll
  for (int step = 0; step < C::D / 16; ++step) {
    std::uint32_t a[4];
    load_a<C::D>(a, keys, warp * 16, 2 * step, lane);
#pragma unroll
    for (int n = 0; n < C::query_tile / 16; ++n) {
      std::uint32_t b[4];
      load_b<C::D>(b, queries, n * 16, 2 * step, lane);
      multiply_pair(s[2 * n], s[2 * n + 1], a, b);
    }
  }
}

/// sum[16 keys, D] += p[16 keys, query_tile] x[query_tile, D]
template <class C>
__device__ __forceinline__ void add_product(float (&sum)[C::D / 8][4], const std::uint32_t (&p)[C::query_tile / 16][4],
                                            const bf16* x, int lane) {
#pragma unroll
  for (int step = 0; step < C::query_tile / 16; ++step) {
#pragma unroll
    for (int n = 0; n < C::D / 16; ++n) {
      std::uint32_t b[4];
      load_b_transposed<C::D>(b, x, step * 16, 2 * n, lane);
      multiply_pair(sum[2 * n], sum[2 * n + 1], p[step], b);
    }
  }
}

template <class C>
__device__ __forceinline__ void pack(std::uint32_t (&p)[C::query_tile / 16][4],
                                     const float (&s)[C::query_tile / 8][4]) {
#pragma unroll
  for (int step = 0; step < C::query_tile / 16; ++step) pack_a(p[step], s[2 * step], s[2 * step + 1]);
}

template <class C>
using ScoreTile = float[C::query_tile / 8][4];

/// Turns products into tanh(inner s), which the softcap scales; slopes: the derivatives of tanh.
template <class C>
__device__ __forceinline__ void cap_scores(ScoreTile<C>& s, ScoreTile<C>& slopes, float inner) {
#pragma unroll
  for (int n = 0; n < C::query_tile / 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      s[n][e] = tanh_of(s[n][e] * inner);
      slopes[n][e] = fmaf(-s[n][e], s[n][e], 1.0F);
    }
  }
}

template <class C>
__device__ __forceinline__ void multiply_by(ScoreTile<C>& p, const ScoreTile<C>& slopes) {
#pragma unroll
  for (int n = 0; n < C::query_tile / 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) p[n][e] *= slopes[n][e];
  }
}

/// Turns scores into probabilities; 0 for pairs that are not visible.
template <class C>
__device__ __forceinline__ void probabilities(float (&s)[C::query_tile / 8][4], const float* lse, const Work& work,
                                              const Tile& queries, const AttentionMask& mask, int warp, int lane) {
  const float scale = (C::Capped ? work.outer : work.scale) * log2_e;
#pragma unroll
  for (int n = 0; n < C::query_tile / 8; ++n) {
    const float2 of_query = *reinterpret_cast<const float2*>(lse + 8 * n + 2 * (lane % 4));
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      s[n][e] = exp2_approx(fmaf(s[n][e], scale, e % 2 == 0 ? -of_query.x : -of_query.y));
    }
  }
  const TileMask tile_mask = tile_mask_of(mask, queries, work.tile, C::key_tile, work.seen.documents, queries);
  if (tile_mask.all) return;
  const int key = warp * 16 + lane / 4;
#pragma unroll
  for (int n = 0; n < C::query_tile / 8; ++n) {
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      if (!tile_mask.is_visible(8 * n + 2 * (lane % 4) + e % 2, key + e / 2 * 8)) s[n][e] = 0.0F;
    }
  }
  if (work.key_documents == nullptr) return;
  const std::int32_t upper = key < tile_mask.keys ? __ldg(work.key_documents + key) : 0;
  const std::int32_t lower = key + 8 < tile_mask.keys ? __ldg(work.key_documents + key + 8) : 0;
#pragma unroll
  for (int n = 0; n < C::query_tile / 8; ++n) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int query = 8 * n + 2 * (lane % 4) + e;
      const std::int32_t document = query < queries.count ? __ldg(work.query_documents + queries.begin + query) : 0;
      if (document != upper) s[n][e] = 0.0F;
      if (document != lower) s[n][2 + e] = 0.0F;
    }
  }
}

/// Turns p into dS = p (dp - delta).
template <class C>
__device__ __forceinline__ void score_gradients(float (&p)[C::query_tile / 8][4],
                                                const float (&dp)[C::query_tile / 8][4], const float* delta, int lane) {
#pragma unroll
  for (int n = 0; n < C::query_tile / 8; ++n) {
    const float2 of_query = *reinterpret_cast<const float2*>(delta + 8 * n + 2 * (lane % 4));
#pragma unroll
    for (int e = 0; e < 4; ++e) p[n][e] *= dp[n][e] - (e % 2 == 0 ? of_query.x : of_query.y);
  }
}

/// Stores the packed dS of this warp's keys in the tile in shared memory.
template <class C>
__device__ __forceinline__ void store_score_gradients(bf16* ds, const std::uint32_t (&p)[C::query_tile / 16][4],
                                                      int warp, int lane) {
  const int key = warp * 16 + lane / 4;
#pragma unroll
  for (int step = 0; step < C::query_tile / 16; ++step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      bf16* const to = ds + swizzled_offset<C::query_tile>(key + i % 2 * 8, 2 * step + i / 2) + 2 * (lane % 4);
      *reinterpret_cast<std::uint32_t*>(to) = p[step][i];
    }
  }
}

/// dq[16 queries, dq_columns] of this warp = dS^T k.
template <class C>
__device__ __forceinline__ void multiply_dq(float (&dq)[C::dq_columns / 8][4], const Shared<C>& shared, int warp,
                                            int lane) {
#pragma unroll
  for (int n = 0; n < C::dq_columns / 8; ++n) dq[n][0] = dq[n][1] = dq[n][2] = dq[n][3] = 0.0F;
  const int chunk = warp / C::dq_rows * (C::dq_columns / 8);
#pragma unroll
  for (int step = 0; step < C::key_tile / 16; ++step) {
    std::uint32_t a[4];
    load_a_transposed<C::query_tile>(a, shared.ds, step * 16, warp % C::dq_rows * 2, lane);
#pragma unroll
    for (int n = 0; n < C::dq_columns / 16; ++n) {
      std::uint32_t b[4];
      load_b_transposed<C::D>(b, shared.k, step * 16, chunk + 2 * n, lane);
      multiply_pair(dq[2 * n], dq[2 * n + 1], a, b);
    }
  }
}

/// to: dq of the step's first query.
template <class C>
__device__ __forceinline__ void add_dq(float* to, std::int64_t stride, const float (&dq)[C::dq_columns / 8][4],
                                       int queries, float scale, int warp, int lane) {
  const int row = warp % C::dq_rows * 16 + lane / 4;
  to += warp / C::dq_rows * C::dq_columns + 2 * (lane % 4);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (row + 8 * half >= queries) continue;
    float* const at = to + (row + 8 * half) * stride;
#pragma unroll
    for (int n = 0; n < C::dq_columns / 8; ++n) {
      reduce_add(at + 8 * n, dq[n][2 * half] * scale, dq[n][2 * half + 1] * scale);
    }
  }
}

/// Adds a warp's sum, times factor, to dk or dv; no other block has these rows.
template <class C>
__device__ __forceinline__ void add_to_tile(float* to, std::int64_t stride, const float (&sum)[C::D / 8][4], int keys,
                                            float factor, int warp, int lane) {
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = warp * 16 + half * 8 + lane / 4;
    if (row >= keys) continue;
    float* const at = to + row * stride + 2 * (lane % 4);
#pragma unroll
    for (int n = 0; n < C::D / 8; ++n) {
      float2* const pair = reinterpret_cast<float2*>(at + 8 * n);
      const float2 old = *pair;
      *pair = make_float2(fmaf(sum[n][2 * half], factor, old.x), fmaf(sum[n][2 * half + 1], factor, old.y));
    }
  }
}

/// Adds a step's queries to dk and dv, and stores dS in shared memory.
template <class C>
__device__ __forceinline__ void compute_step(Shared<C>& shared, const BackwardCall<bf16>& call, const Tile& queries,
                                             int stage, float (&dk)[C::D / 8][4], float (&dv)[C::D / 8][4], int warp,
                                             int lane) {
  const Work& work = shared.work;
  float p[C::query_tile / 8][4];  // keys by queries: scores, probabilities, dS
  multiply_transposed<C>(p, shared.k, shared.q[stage], warp, lane);
  ScoreTile<C> slopes;
  if constexpr (C::Capped) cap_scores<C>(p, slopes, work.inner);
  probabilities<C>(p, shared.rows[stage], work, queries, call.shape.mask, warp, lane);
  std::uint32_t packed_p[C::query_tile / 16][4];
  pack<C>(packed_p, p);
  if constexpr (C::Capped) multiply_by<C>(p, slopes);
  add_product<C>(dv, packed_p, shared.dout[stage], lane);
  float dp[C::query_tile / 8][4];
  multiply_transposed<C>(dp, shared.v, shared.dout[stage], warp, lane);
  score_gradients<C>(p, dp, shared.rows[stage] + C::query_tile, lane);
  pack<C>(packed_p, p);
  store_score_gradients<C>(shared.ds, packed_p, warp, lane);
  add_product<C>(dk, packed_p, shared.q[stage], lane);
}

/// Passes on the turn of the previous step, if there is one, and waits for that of this step, which it returns. After a
/// barrier, the block then adds to dq.
template <class C>
__device__ __forceinline__ int* next_turn(const DqSemaphore& semaphore, int* before, const Work& work, std::int64_t h,
                                          std::int64_t H, const Tile& queries) {
  const int slot = slot_of(queries, C::query_tile);
  int* const turn = counter_of(semaphore, work.b * H + h, slot);
  if (threadIdx.x == 0) {
    if (before != nullptr) semaphore_release(before);
    semaphore_acquire(turn, rank_of(semaphore, work.b, slot, work.cursor),
                      {"attention backward (mma)", "its turn to add dq", "computing"});
  }
  __syncwarp();
  return turn;
}

/// Grid: one block for each tile of keys, key/value head, and sequence.
template <class C, bool Ordered>
__global__ void __launch_bounds__(C::threads, 1)
    backward_kernel(const __grid_constant__ BackwardCall<bf16> call, const DqSemaphore semaphore) {
  Shared<C>& shared = *dynamic_shared<Shared<C>>();
  Work& work = shared.work;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  int lane = static_cast<int>(threadIdx.x) % 32;
  if (warp == 0) {
    const int work_index = Ordered ? take_work_index(semaphore.next_work) : static_cast<int>(blockIdx.x);
    take_work<C>(work, call, work_index, lane);
  }
  __syncthreads();
  const int group = static_cast<int>(call.shape.H / call.shape.G);
  GroupCursor step{TileCursor::before_last(call.queries, work.seen), 0};
  if (!step.queries.next(work.seen)) return;

  const std::int64_t kv_stride = call.shape.G * C::D;
  copy_tile<C::key_tile, C::D, C::threads>(shared.k, call.k + work.kv_begin, kv_stride, work.tile.count);
  copy_tile<C::key_tile, C::D, C::threads>(shared.v, call.v + work.kv_begin, kv_stride, work.tile.count);
  store_rows<C>(shared, fetch<C>(shared, call, step, 0), 0);
  cp_async_commit();

  float dk[C::D / 8][4] = {}, dv[C::D / 8][4] = {};
  int* turn = nullptr;  // held by this block, from the previous step
  int stage = 0;
  for (bool has_next = true; has_next; stage ^= 1) {
    forget(lane);
    cp_async_wait<0>();
    __syncthreads();  // this step's queries have arrived; all threads are done with the previous ones
    GroupCursor next = step;
    has_next = next.next(work.seen, group);
    float next_row = 0.0F;
    if (has_next) next_row = fetch<C>(shared, call, next, stage ^ 1);
    cp_async_commit();
    const Tile queries = step.queries.tile(call.queries, C::query_tile);
    compute_step<C>(shared, call, queries, stage, dk, dv, warp, lane);
    store_rows<C>(shared, next_row, stage ^ 1);

    // The turn of the previous step is passed on only here, after its additions have arrived, when the fence costs
    // nothing.
    if (Ordered && turn != nullptr) __threadfence();
    __syncthreads();  // dS is complete
    if constexpr (Ordered) {
      turn = next_turn<C>(semaphore, turn, work, work.g * group + step.head, call.shape.H, queries);
    }
    float dq[C::dq_columns / 8][4];
    multiply_dq<C>(dq, shared, warp, lane);
    if constexpr (Ordered) __syncthreads();  // the turn has come
    add_dq<C>(call.dq + query_offsets<C>(call, work, step.head, queries).element, call.shape.H * C::D, dq,
              queries.count, work.scale, warp, lane);
    step = next;
  }
  if constexpr (Ordered) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) semaphore_release(turn);
  }
  add_to_tile<C>(call.dk + work.kv_begin, kv_stride, dk, work.tile.count, work.scale, warp, lane);
  add_to_tile<C>(call.dv + work.kv_begin, kv_stride, dv, work.tile.count, 1.0F, warp, lane);
}

template <class C>
void launch_backward(Context& context, const BackwardCall<bf16>& call, void* workspace) {
  const std::int64_t blocks = tile_count(call.keys, C::key_tile) * call.shape.B * call.shape.G;
  const dim3 grid(blocks_for(blocks, 1)), block(C::threads);
  if (!call.shape.deterministic) {
    return launch<backward_kernel<C, false>>(context, grid, block, sizeof(Shared<C>), call, DqSemaphore{});
  }
  arm_waits(context);
  const DqSemaphore semaphore = semaphore_in(workspace, call.shape, call.queries.tokens, C::query_tile);
  prepare_semaphore(context, semaphore, call.shape, call.queries, call.keys, C::query_tile, C::key_tile);
  launch<backward_kernel<C, true>>(context, grid, block, sizeof(Shared<C>), call, semaphore);
}

template <bool Capped>
using Cut64 = Cut<64, 128, 64, Capped>;
template <bool Capped>
using Cut128 = Cut<128, 128, 64, Capped>;  // 146 KiB: A100
template <bool Capped>
using SmallCut128 = Cut<128, 64, 32, Capped>;  // 69 KiB: other chips
static_assert(sizeof(Shared<Cut64<false>>) <= 99 << 10 && sizeof(Shared<SmallCut128<false>>) <= 99 << 10);

template <bool Capped>
void launch_backward_of(Context& context, const BackwardCall<bf16>& call, void* workspace) {
  if (call.shape.D == 64) return launch_backward<Cut64<Capped>>(context, call, workspace);
  if (context.shared_bytes_per_block() >= sizeof(Shared<Cut128<Capped>>)) {
    return launch_backward<Cut128<Capped>>(context, call, workspace);
  }
  launch_backward<SmallCut128<Capped>>(context, call, workspace);
}

}  // namespace

void tensor_backward(Context& context, const BackwardCall<bf16>& call, void* workspace) {
  if (call.shape.softcap > 0) return launch_backward_of<true>(context, call, workspace);
  launch_backward_of<false>(context, call, workspace);
}

std::size_t tensor_workspace_bytes(const AttentionShape& shape, std::int64_t Tq) {
  return shape.deterministic ? semaphore_bytes(shape, Tq, SmallCut128<false>::query_tile) : 0;
}

}  // namespace ringtrain::cuda
