// The passes that only touch attention's state: finalization, and backward's delta. They move memory: 16 bytes per
// thread and access if a head's elements allow it.
#include <cmath>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/launch.cuh"

namespace ringtrain::cuda {

namespace {

constexpr int threads = 256;
constexpr std::int64_t max_blocks = 1 << 16;  // of a kernel with a grid-stride loop

dim3 grid_for(std::int64_t items) {
  const std::int64_t blocks = (items + threads - 1) / threads;
  return dim3(static_cast<unsigned>(blocks < max_blocks ? blocks : max_blocks));
}

__device__ __forceinline__ std::int64_t first_item() {
  return std::int64_t{blockIdx.x} * threads + threadIdx.x;
}
__device__ __forceinline__ std::int64_t item_stride() {
  return std::int64_t{gridDim.x} * threads;
}

template <class T, int W>
__global__ void __launch_bounds__(threads)
    finish_kernel(T* out, float* lse, const float* o, const float* m, const float* l, std::int64_t items,
                  std::int64_t tokens, int H, int packs) {
  for (std::int64_t i = first_item(); i < items; i += item_stride()) {
    const std::int64_t head = i / packs, token = head / H;  // head: of B * T * H
    const std::int64_t row = (token / tokens * H + head % H) * tokens + token % tokens;
    const float sum = l[row], inverse = sum == 0.0F ? 0.0F : 1.0F / sum;
    Pack<float, W> pack = load<W>(o + i * W);
#pragma unroll
    for (int e = 0; e < W; ++e) pack.at[e] *= inverse;
    store(out + i * W, rounded<T>(pack));
    if (i % packs == 0) lse[row] = sum == 0.0F ? -INFINITY : m[row] + logf(sum);
  }
}

/// Eight lanes process a row of D elements, in packs of W.
template <class T, int W>
__global__ void __launch_bounds__(threads)
    delta_kernel(float* delta, const T* dout, const T* out, std::int64_t rows, std::int64_t tokens, int H, int packs) {
  constexpr int lanes = 8;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  // Whole warps stay in the loop: lanes beyond the last row add nothing and store nothing.
  for (std::int64_t first = first_item() / 32 * (32 / lanes); first < rows; first += item_stride() / lanes) {
    const std::int64_t head = first + static_cast<int>(threadIdx.x) % 32 / lanes;
    float sum = 0.0F;
    for (int i = lane; head < rows && i < packs; i += lanes) {
      const std::int64_t at = (head * packs + i) * W;
      const Pack<float, W> x = widened(load<W>(dout + at)), y = widened(load<W>(out + at));
#pragma unroll
      for (int e = 0; e < W; ++e) sum = fmaf(x.at[e], y.at[e], sum);
    }
#pragma unroll
    for (int apart = 1; apart < lanes; apart *= 2) sum += __shfl_xor_sync(0xFFFFFFFFU, sum, apart);
    const std::int64_t token = head / H;
    if (lane == 0 && head < rows) delta[(token / tokens * H + head % H) * tokens + token % tokens] = sum;
  }
}

}  // namespace

void attention_finalize(Stream& stream, const AttentionState& state, const TensorView& out, const TensorView& lse) {
  const std::int64_t T = out.dim(1), H = out.dim(2), D = out.dim(3);
  dispatch_storage(out.dtype, [&]<class E>() {
    with_packs<pack_width<E>>(D % pack_width<E> == 0 && aligned_to(16, {out.data, state.o.data}), [&]<int W>() {
      const std::int64_t items = out.numel() / W;
      launch<finish_kernel<E, W>>(stream.cuda(), grid_for(items), dim3(threads), 0, out.as<E>(), lse.as<float>(),
                                  state.o.as<float>(), state.m.as<float>(), state.l.as<float>(), items, T,
                                  static_cast<int>(H), static_cast<int>(D / W));
    });
  });
}

void attention_delta(Stream& stream, const TensorView& delta, const ConstTensorView& dout, const ConstTensorView& out) {
  const std::int64_t T = out.dim(1), H = out.dim(2), D = out.dim(3), rows = delta.numel();
  dispatch_storage(out.dtype, [&]<class E>() {
    with_packs<pack_width<E>>(D % pack_width<E> == 0 && aligned_to(16, {out.data, dout.data}), [&]<int W>() {
      launch<delta_kernel<E, W>>(stream.cuda(), grid_for(rows * 8), dim3(threads), 0, delta.as<float>(), dout.as<E>(),
                                 out.as<E>(), rows, T, static_cast<int>(H), static_cast<int>(D / W));
    });
  });
}

}  // namespace ringtrain::cuda
