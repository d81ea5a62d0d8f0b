// Backward of the general path: FlashAttention-2, Algorithm 2, in two kernels that both recompute the scores, one for
// dk and dv by tiles of keys, and one for dq by tiles of queries, so that every sum has one owner.
#include "kernels/cuda/attention/attention_general.cuh"

namespace ringtrain::cuda {

namespace general {

namespace {

template <class C>
struct BackwardShared {
  Rows<C> q, dout, k, v;
  Pairs<C> p, ds;  // keys by queries for dk and dv, queries by keys for dq
  float lse[C::tile], delta[C::tile];
  TilesSeen seen;
};

/// lse and delta of a tile of queries; missing rows have seen no key.
template <class C>
__device__ __forceinline__ void load_statistics(BackwardShared<C>& shared, const float* lse, const float* delta,
                                                int count) {
  const int i = static_cast<int>(threadIdx.x);
  if (i >= C::tile) return;
  shared.lse[i] = i < count ? lse[i] : -INFINITY;
  shared.delta[i] = i < count ? delta[i] : 0.0F;
}

struct Gradient {
  float p, ds;
};

/// Returns the probability and dS, with respect to the scaled product, of query i and key j of the tiles in shared
/// memory.
template <class C, bool Capped>
__device__ __forceinline__ Gradient gradient_of(const BackwardShared<C>& shared, int i, int j, bool seen,
                                                const Scores<Capped>& scores, int D) {
  if (!seen || shared.lse[i] == -INFINITY) return {0.0F, 0.0F};
  const float bent = scores.bent(dot(shared.q[i], shared.k[j], D));
  const float p = expf(fmaf(scores.factor(), bent, -shared.lse[i]));
  const float ds = p * (dot(shared.dout[i], shared.v[j], D) - shared.delta[i]);
  return {p, Capped ? ds * scores.slope(bent) : ds};
}

/// to[d] += factor * sum, over this thread's elements.
template <class C>
__device__ __forceinline__ void add_row(float* to, const float (&sum)[C::elements], float factor, int sub, int D) {
#pragma unroll
  for (int i = 0; i < C::elements; ++i) {
    const int d = sub + C::per_row * i;
    if (d < D) to[d] = fmaf(factor, sum[i], to[d]);
  }
}

/// Grid: one block for each tile of keys, key/value head, and sequence.
template <class T, class C, bool Capped>
__global__ void __launch_bounds__(C::threads, 1) key_kernel(const __grid_constant__ BackwardCall<T> call) {
  BackwardShared<C>& shared = *dynamic_shared<BackwardShared<C>>();
  const int H = static_cast<int>(call.shape.H), B = static_cast<int>(call.shape.B), D = static_cast<int>(call.shape.D);
  const int G = static_cast<int>(call.shape.G), group = H / G;
  const int g = static_cast<int>(blockIdx.x % G), b = static_cast<int>(blockIdx.x / G % B);
  const Tile tile = tile_at(call.keys, C::tile, static_cast<int>(blockIdx.x / G / B));
  const ThreadPosition<C> at;
  if (threadIdx.x < 32) {
    find_tiles(shared.seen, call.keys, tile, call.queries, C::tile, queries_that_see(call.shape.mask, tile.positions()),
               b);
  }
  __syncthreads();
  TileCursor cursor = TileCursor::before_last(call.queries, shared.seen);
  if (!cursor.next(shared.seen)) return;
  const std::int64_t kv = ((std::int64_t{b} * call.keys.tokens + tile.begin) * G + g) * D;
  load_rows<C>(shared.k, call.k + kv, std::int64_t{G} * D, tile.count, D);
  load_rows<C>(shared.v, call.v + kv, std::int64_t{G} * D, tile.count, D);
  const Scores<Capped> scores(call.shape);
  float dk[C::elements] = {}, dv[C::elements] = {};
  do {
    const Tile queries = cursor.tile(call.queries, C::tile);
    const TileMask tile_mask = tile_mask_of(call.shape.mask, queries, tile, C::tile, shared.seen.documents, queries);
    for (int h = g * group; h < (g + 1) * group; ++h) {
      const std::int64_t q = ((std::int64_t{b} * call.queries.tokens + queries.begin) * H + h) * D;
      const std::int64_t row = (std::int64_t{b} * H + h) * call.queries.tokens + queries.begin;
      __syncthreads();  // all threads are done with the previous queries
      load_rows<C>(shared.q, call.q + q, std::int64_t{H} * D, queries.count, D);
      load_rows<C>(shared.dout, call.dout + q, std::int64_t{H} * D, queries.count, D);
      load_statistics<C>(shared, call.lse + row, call.delta + row, queries.count);
      __syncthreads();
#pragma unroll
      for (int i = 0; i < C::scores; ++i) {
        const int query = at.sub + C::per_row * i;
        const bool seen = visible(tile_mask, query, at.row, queries.count, documents_at(call.queries, b, queries.begin),
                                  documents_at(call.keys, b, tile.begin));
        const Gradient gradient = gradient_of<C>(shared, query, at.row, seen, scores, D);
        shared.p[at.row][query] = gradient.p;
        shared.ds[at.row][query] = gradient.ds;
      }
      __syncwarp();  // a row belongs to one warp
      add_weighted<C>(dv, shared.p[at.row], shared.dout, at.sub, D);
      add_weighted<C>(dk, shared.ds[at.row], shared.q, at.sub, D);
    }
  } while (cursor.next(shared.seen));
  if (at.row >= tile.count) return;
  add_row<C>(call.dk + kv + at.row * std::int64_t{G} * D, dk, scores.scale, at.sub, D);
  add_row<C>(call.dv + kv + at.row * std::int64_t{G} * D, dv, 1.0F, at.sub, D);
}

/// Grid: see take_queries.
template <class T, class C, bool Capped>
__global__ void __launch_bounds__(C::threads, 1) query_kernel(const __grid_constant__ BackwardCall<T> call) {
  BackwardShared<C>& shared = *dynamic_shared<BackwardShared<C>>();
  const auto [H, G, D, b, g, tile, row, q] = take_queries<C>(call, shared.seen);
  const ThreadPosition<C> at;
  __syncthreads();
  TileCursor cursor = TileCursor::before_last(call.keys, shared.seen);
  if (!cursor.next(shared.seen)) return;
  load_rows<C>(shared.q, call.q + q, std::int64_t{H} * D, tile.count, D);
  load_rows<C>(shared.dout, call.dout + q, std::int64_t{H} * D, tile.count, D);
  load_statistics<C>(shared, call.lse + row, call.delta + row, tile.count);
  const Scores<Capped> scores(call.shape);
  float dq[C::elements] = {};
  do {
    const Tile keys = cursor.tile(call.keys, C::tile);
    const TileMask tile_mask = tile_mask_of(call.shape.mask, tile, keys, C::tile, shared.seen.documents, keys);
    const std::int64_t kv = ((std::int64_t{b} * call.keys.tokens + keys.begin) * G + g) * D;
    __syncthreads();  // all threads are done with the previous keys
    load_rows<C>(shared.k, call.k + kv, std::int64_t{G} * D, keys.count, D);
    load_rows<C>(shared.v, call.v + kv, std::int64_t{G} * D, keys.count, D);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < C::scores; ++i) {
      const int key = at.sub + C::per_row * i;
      const bool seen = visible(tile_mask, at.row, key, tile.count, documents_at(call.queries, b, tile.begin),
                                documents_at(call.keys, b, keys.begin));
      shared.ds[at.row][key] = gradient_of<C>(shared, at.row, key, seen, scores, D).ds;
    }
    __syncwarp();
    add_weighted<C>(dq, shared.ds[at.row], shared.k, at.sub, D);
  } while (cursor.next(shared.seen));
  if (at.row < tile.count) add_row<C>(call.dq + q + at.row * std::int64_t{H} * D, dq, scores.scale, at.sub, D);
}

}  // namespace

}  // namespace general

template <class T>
void general_backward(Context& context, const BackwardCall<T>& call) {
  general::with_cut(call.shape.D, [&]<class C>() {
    const dim3 block(C::threads);
    const std::int64_t key_blocks = tile_count(call.keys, C::tile) * call.shape.B * call.shape.G;
    const std::int64_t query_blocks = tile_count(call.queries, C::tile) * call.shape.B * call.shape.H;
    general::with_softcap(call.shape, [&]<bool Capped>() {
      launch<general::key_kernel<T, C, Capped>>(context, dim3(blocks_for(key_blocks, 1)), block,
                                                sizeof(general::BackwardShared<C>), call);
      launch<general::query_kernel<T, C, Capped>>(context, dim3(blocks_for(query_blocks, 1)), block,
                                                  sizeof(general::BackwardShared<C>), call);
    });
  });
}
template void general_backward(Context& context, const BackwardCall<float>& call);
template void general_backward(Context& context, const BackwardCall<__nv_bfloat16>& call);

}  // namespace ringtrain::cuda
