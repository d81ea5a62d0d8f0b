// Elementwise kernels: outputs[O] = op(inputs[I]), element by element, in packs of 16 bytes. An output may be the
// memory of an input. An output that is null is not written.
#pragma once

#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/launch.cuh"

namespace ringtrain::cuda {

template <class To, class From, int O, int I>
struct MapTensors {
  To* out[O];
  const From* in[I == 0 ? 1 : I];
};

inline constexpr int map_threads = 256;
inline constexpr int map_packs = 2;  // packs of each tensor that a thread has in flight

/// Op: op(const C (&in)[max(I, 1)], C (&out)[O]) with C the type of arithmetic. Applies it to the elements of one pack.
template <int W, class Op, class To, class From, int O, int I, int inputs>
__device__ __forceinline__ void map_pack(const Op& op, const MapTensors<To, From, O, I>& tensors,
                                         const Pack<From, W> (&in)[inputs], std::int64_t first) {
  using C = Compute<From>;
  Pack<C, W> values[inputs], results[O];
#pragma unroll
  for (int i = 0; i < I; ++i) values[i] = widened(in[i]);
#pragma unroll
  for (int w = 0; w < W; ++w) {
    C element[inputs]{}, result[O];
#pragma unroll
    for (int i = 0; i < I; ++i) element[i] = values[i].at[w];
    op(element, result);
#pragma unroll
    for (int o = 0; o < O; ++o) results[o].at[w] = result[o];
  }
#pragma unroll
  for (int o = 0; o < O; ++o) {
    if (tensors.out[o] != nullptr) store(tensors.out[o] + first, rounded<To>(results[o]));
  }
}

template <class Op, class To, class From, int O, int I, int W>
__global__ void __launch_bounds__(map_threads)
    map_kernel(const Op op, const MapTensors<To, From, O, I> tensors, const std::int64_t n) {
  constexpr int inputs = I == 0 ? 1 : I;
  const std::int64_t packs = n / W;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * (map_packs * map_threads) + threadIdx.x;
  Pack<From, W> in[map_packs][inputs];
#pragma unroll
  for (int u = 0; u < map_packs; ++u) {
    const std::int64_t pack = first + u * map_threads;
#pragma unroll
    for (int i = 0; i < I; ++i) {
      if (pack < packs) in[u][i] = load<W>(tensors.in[i] + pack * W);
    }
  }
#pragma unroll
  for (int u = 0; u < map_packs; ++u) {
    const std::int64_t pack = first + u * map_threads;
    if (pack < packs) map_pack(op, tensors, in[u], pack * W);
  }
  const std::int64_t index = packs * W + threadIdx.x;
  if (blockIdx.x == 0 && index < n) {
    Pack<From, 1> element[inputs];
#pragma unroll
    for (int i = 0; i < I; ++i) element[i] = load<1>(tensors.in[i] + index);
    map_pack(op, tensors, element, index);
  }
}

template <class Op, class To, class From, int O, int I>
void map(Context& context, std::int64_t n, const Op& op, const MapTensors<To, From, O, I>& tensors) {
  constexpr int widest = pack_width<To, From>;
  bool whole = true;
  for (int o = 0; o < O; ++o) whole = whole && aligned_to(alignof(Pack<To, widest>), {tensors.out[o]});
  for (int i = 0; i < I; ++i) whole = whole && aligned_to(alignof(Pack<From, widest>), {tensors.in[i]});
  with_packs<widest>(whole, [&]<int W>() {
    const unsigned blocks = std::max(blocks_for(n / W, map_packs * map_threads), n > 0 ? 1U : 0U);
    launch<map_kernel<Op, To, From, O, I, W>>(context, blocks, map_threads, 0, op, tensors, n);
  });
}

}  // namespace ringtrain::cuda
