// Forward of the general path: FlashAttention-2, Algorithm 1, with a thread's part of a query's row in registers.
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

/// A thread's part of a query's row, at `row` of [B, H, Tq] and `element` of [B, Tq, H, D].
template <class C>
struct RowState {
  float m, l, o[C::elements];
};

template <class T, class C>
__device__ __forceinline__ RowState<C> read_state(const ForwardCall<T>& call, std::int64_t row, std::int64_t element,
                                                  int sub, bool known) {
  RowState<C> state{known ? call.m[row] : -INFINITY, known ? call.l[row] : 0.0F, {}};
#pragma unroll
  for (int i = 0; i < C::elements; ++i) {
    const int d = sub + C::per_row * i;
    state.o[i] = known && d < call.shape.D ? call.o[element + d] : 0.0F;
  }
  return state;
}

/// Updates a state to the maximum including these scores; p: receives the row's probabilities.
template <class C>
__device__ __forceinline__ void softmax(RowState<C>& state, const float (&s)[C::scores], float* p, int sub) {
  float largest = -INFINITY, sum = 0.0F;
#pragma unroll
  for (int i = 0; i < C::scores; ++i) largest = fmaxf(largest, s[i]);
  largest = over_row<C>(largest, [](float x, float y) { return fmaxf(x, y); });
  const float now = fmaxf(state.m, largest), base = now == -INFINITY ? 0.0F : now;  // no key so far: avoids NaN below
  const float shrink = expf(state.m - base);
#pragma unroll
  for (int i = 0; i < C::scores; ++i) sum += p[sub + C::per_row * i] = expf(s[i] - base);
  state.m = now;
  state.l = fmaf(state.l, shrink, over_row<C>(sum, [](float x, float y) { return x + y; }));
#pragma unroll
  for (int i = 0; i < C::elements; ++i) state.o[i] *= shrink;
}

/// Writes the state back or, after the last block, out and lse.
template <class T, class C>
__device__ __forceinline__ void write_state(const ForwardCall<T>& call, const RowState<C>& state, std::int64_t row,
                                            std::int64_t element, int sub) {
  const float inverse = state.l == 0.0F ? 0.0F : 1.0F / state.l;
#pragma unroll
  for (int i = 0; i < C::elements; ++i) {
    const int d = sub + C::per_row * i;
    if (d >= call.shape.D) continue;
    if (call.last) {
      store(call.out + element + d, rounded<T>(Pack<float, 1>{{state.o[i] * inverse}}));
    } else {
      call.o[element + d] = state.o[i];
    }
  }
  if (sub != 0) return;
  if (call.last) {
    call.lse[row] = state.l == 0.0F ? -INFINITY : state.m + logf(state.l);
  } else {
    call.m[row] = state.m;
    call.l[row] = state.l;
  }
}

/// Grid: see take_queries.
template <class T, class C, bool Capped>
__global__ void __launch_bounds__(C::threads, 1) forward_kernel(const __grid_constant__ ForwardCall<T> call) {
  ForwardShared<C>& shared = *dynamic_shared<ForwardShared<C>>();
  const auto [H, G, D, b, g, tile, first_row, first_element] = take_queries<C>(call, shared.seen);
  const ThreadPosition<C> at;
  load_rows<C>(shared.q, call.q + first_element, std::int64_t{H} * D, tile.count, D);
  __syncthreads();
  TileCursor cursor = TileCursor::before_last(call.keys, shared.seen);
  bool has_keys = cursor.next(shared.seen);
  if (!has_keys && !call.first && !call.last) return;

  const bool mine = at.row < tile.count;
  const std::int64_t row = first_row + at.row, element = first_element + at.row * std::int64_t{H} * D;
  const Scores<Capped> scores(call.shape);
  RowState<C> state = read_state<T, C>(call, row, element, at.sub, mine && !call.first);
  const std::int32_t* const query_documents = documents_at(call.queries, b, tile.begin);

  for (; has_keys; has_keys = cursor.next(shared.seen)) {
    const Tile keys = cursor.tile(call.keys, C::tile);
    const TileMask tile_mask = tile_mask_of(call.shape.mask, tile, keys, C::tile, shared.seen.documents, keys);
    const std::int64_t kv = ((std::int64_t{b} * call.keys.tokens + keys.begin) * G + g) * D;
    load_rows<C>(shared.kv, call.k + kv, std::int64_t{G} * D, keys.count, D);
    __syncthreads();
    float s[C::scores];
#pragma unroll
    for (int i = 0; i < C::scores; ++i) {
      const int key = at.sub + C::per_row * i;
      const bool seen =
          visible(tile_mask, at.row, key, tile.count, query_documents, documents_at(call.keys, b, keys.begin));
      s[i] = seen ? scores.factor() * scores.bent(dot(shared.q[at.row], shared.kv[key], D)) : -INFINITY;
    }
    softmax<C>(state, s, shared.p[at.row], at.sub);
    __syncthreads();  // all threads are done with the keys
    load_rows<C>(shared.kv, call.v + kv, std::int64_t{G} * D, keys.count, D);
    __syncthreads();
    add_weighted<C>(state.o, shared.p[at.row], shared.kv, at.sub, D);
    __syncthreads();  // and with the values
  }

  if (mine) write_state<T, C>(call, state, row, element, at.sub);
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
