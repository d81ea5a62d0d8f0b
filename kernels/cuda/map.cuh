// Elementwise kernels: outputs[O] = op(inputs[I]), an element at a time, in packs of 16 bytes. An output may be the
// memory of an input.
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
inline constexpr int map_packs = 2;  // of each tensor that a thread has under way

/// Op: op(const C (&in)[max(I, 1)], C (&out)[O]) with C the type of arithmetic.
template <class Op, class To, class From, int O, int I, int W>
__global__ void __launch_bounds__(map_threads)
    map_kernel(const Op op, const MapTensors<To, From, O, I> tensors, const std::int64_t n) {
  using C = Compute<From>;
  constexpr int inputs = I == 0 ? 1 : I;
  const auto apply = [&]<int width>(std::int64_t first, const Pack<From, width>(&in)[inputs]) {
    Pack<C, width> values[inputs], results[O];
#pragma unroll
    for (int i = 0; i < I; ++i) values[i] = widened(in[i]);
#pragma unroll
    for (int w = 0; w < width; ++w) {
      C element[inputs]{}, result[O];
#pragma unroll
      for (int i = 0; i < I; ++i) element[i] = values[i].at[w];
      op(element, result);
#pragma unroll
      for (int o = 0; o < O; ++o) results[o].at[w] = result[o];
    }
#pragma unroll
    for (int o = 0; o < O; ++o) store(tensors.out[o] + first, rounded<To>(results[o]));
  };

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
    if (pack < packs) apply.template operator()<W>(pack * W, in[u]);
  }
  const std::int64_t rest = packs * W + threadIdx.x;
  if (blockIdx.x == 0 && rest < n) {
    Pack<From, 1> element[inputs];
#pragma unroll
    for (int i = 0; i < I; ++i) element[i] = load<1>(tensors.in[i] + rest);
    apply.template operator()<1>(rest, element);
  }
}

template <class Op, class To, class From, int O, int I>
void map(Context& context, std::int64_t n, const Op& op, const MapTensors<To, From, O, I>& tensors) {
  constexpr int W = pack_width<To, From>;
  bool whole = true;
  for (const To* out : tensors.out) whole = whole && aligned_to(alignof(Pack<To, W>), {out});
  if constexpr (I > 0) {
    for (const From* in : tensors.in) whole = whole && aligned_to(alignof(Pack<From, W>), {in});
  }
  const auto run = [&]<int width>() {
    const unsigned blocks = std::max(blocks_for(n / width, map_packs * map_threads), n > 0 ? 1U : 0U);
    launch(context, map_kernel<Op, To, From, O, I, width>, blocks, map_threads, 0, op, tensors, n);
  };
  if (whole) {
    run.template operator()<W>();
  } else {
    run.template operator()<1>();
  }
}

}  // namespace ringtrain::cuda
