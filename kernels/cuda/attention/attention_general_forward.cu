// Forward of the general path: FlashAttention-2, Algorithm 1, with a thread's share of a query's row in registers.
#include "kernels/cuda/attention/attention_general.cuh"

namespace ringtrain::cuda {

namespace general {

namespace {

template <class C>
struct ForwardShared {
  Rows<C> q, kv;  // keys, then values
  Pairs<C> p;
  TilesSeen seen;
};

/// Returns the combination of x over the threads of a row.
template <class C, class Combine>
__device__ __forceinline__ float over_row(float x, Combine&& combine) {
#pragma unroll
  for (int lanes = 1; lanes < C::per_row; lanes *= 2) x = combine(x, __shfl_xor_sync(0xFFFFFFFFU, x, lanes));
  return x;
}

/// Grid: as take_queries.
template <class T, class C, bool Capped>
__global__ void __launch_bounds__(C::threads, 1) forward_kernel(const __grid_constant__ ForwardCall<T> call) {
  ForwardShared<C>& shared = *dynamic_shared<ForwardShared<C>>();
  const auto [H, G, D, b, g, tile, first_row, first_element] = take_queries<C>(call, shared.seen);
  const Place<C> at;
  load_rows<C>(shared.q, call.q + first_element, std::int64_t{H} * D, tile.count, D);
  __syncthreads();
  TileCursor cursor = TileCursor::before_last(call.keys, shared.seen);
  bool more = cursor.next(shared.seen);
  if (!more && !call.first && !call.last) return;

  const bool mine = at.row < tile.count, known = mine && !call.first;
  const std::int64_t row = first_row + at.row, element = first_element + at.row * std::int64_t{H} * D;
  const Scores<Capped> scores(call.shape);
  float m = known ? call.m[row] : -INFINITY, l = known ? call.l[row] : 0.0F, o[C::elements];
#pragma unroll
  for (int i = 0; i < C::elements; ++i) {
    const int d = at.sub + C::per_row * i;
    o[i] = known && d < D ? call.o[element + d] : 0.0F;
  }
  const std::int32_t* const query_documents = documents_at(call.queries, b, tile.begin);

  for (; more; more = cursor.next(shared.seen)) {
    const Tile keys = cursor.tile(call.keys, C::tile);
    const TileMask tile_mask = tile_mask_of(call.shape.mask, tile, keys, C::tile, shared.seen.documents, keys);
    const std::int64_t kv = ((std::int64_t{b} * call.keys.tokens + keys.begin) * G + g) * D;
    load_rows<C>(shared.kv, call.k + kv, std::int64_t{G} * D, keys.count, D);
    __syncthreads();
    float s[C::scores], largest = -INFINITY;
#pragma unroll
    for (int i = 0; i < C::scores; ++i) {
      const int key = at.sub + C::per_row * i;
      const bool seen =
          visible(tile_mask, at.row, key, tile.count, query_documents, documents_at(call.keys, b, keys.begin));
      s[i] = seen ? scores.factor() * scores.bent(dot(shared.q[at.row], shared.kv[key], D)) : -INFINITY;
      largest = fmaxf(largest, s[i]);
    }
    largest = over_row<C>(largest, [](float x, float y) { return fmaxf(x, y); });
    const float now = fmaxf(m, largest), base = now == -INFINITY ? 0.0F : now;  // no key so far: no NaN below
    const float shrink = expf(m - base);
    float sum = 0.0F;
#pragma unroll
    for (int i = 0; i < C::scores; ++i) {
      const float p = expf(s[i] - base);
      shared.p[at.row][at.sub + C::per_row * i] = p;
      sum += p;
    }
    m = now;
    l = fmaf(l, shrink, over_row<C>(sum, [](float x, float y) { return x + y; }));
#pragma unroll
    for (int i = 0; i < C::elements; ++i) o[i] *= shrink;
    __syncthreads();  // all are done with the keys
    load_rows<C>(shared.kv, call.v + kv, std::int64_t{G} * D, keys.count, D);
    __syncthreads();
    add_weighted<C>(o, shared.p[at.row], shared.kv, at.sub, D);
    __syncthreads();  // and with the values
  }

  if (!mine) return;
  const float inverse = l == 0.0F ? 0.0F : 1.0F / l;
#pragma unroll
  for (int i = 0; i < C::elements; ++i) {
    const int d = at.sub + C::per_row * i;
    if (d >= D) continue;
    if (call.last) {
      store(call.out + element + d, rounded<T>(Pack<float, 1>{{o[i] * inverse}}));
    } else {
      call.o[element + d] = o[i];
    }
  }
  if (at.sub != 0) return;
  if (call.last) {
    call.lse[row] = l == 0.0F ? -INFINITY : m + logf(l);
  } else {
    call.m[row] = m;
    call.l[row] = l;
  }
}

}  // namespace

}  // namespace general

template <class T>
void general_forward(Context& context, const ForwardCall<T>& call) {
  general::with_cut(call.shape.D, [&]<class C>() {
    const std::int64_t blocks = tile_count(call.queries, C::tile) * call.shape.B * call.shape.H;
    general::with_softcap(call.shape, [&]<bool Capped>() {
      launch<general::forward_kernel<T, C, Capped>>(context, dim3(blocks_for(blocks, 1)), dim3(C::threads),
                                                    sizeof(general::ForwardShared<C>), call);
    });
  });
}
template void general_forward(Context& context, const ForwardCall<float>& call);
template void general_forward(Context& context, const ForwardCall<__nv_bfloat16>& call);

}  // namespace ringtrain::cuda
