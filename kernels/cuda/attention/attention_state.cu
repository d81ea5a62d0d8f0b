// The passes that only touch attention's state: finalization, and backward's delta. They move memory: 16 bytes per
// thread and access if a head's elements allow it. Eight lanes process a row of a head, in packs of W elements.
#include <cmath>

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/elements.cuh"
#include "kernels/cuda/launch.cuh"

namespace ringtrain::cuda {

namespace {

constexpr int threads = 256, lanes = 8;

/// This thread's row: its number in [B, tokens, H], and its index in [B, H, tokens]. A warp's threads do not return
/// early, because they wait for each other after their rows; they skip rows beyond the last.
struct Row {
  std::int64_t head, index;
  int lane;
  __device__ Row(std::int64_t tokens, int H)
      : head((std::int64_t{blockIdx.x} * threads + threadIdx.x) / lanes),
        index((head / H / tokens * H + head % H) * tokens + head / H % tokens),
        lane(static_cast<int>(threadIdx.x) % lanes) {}
};

/// sinks: [H], or null.
template <class T, int W>
__global__ void __launch_bounds__(threads)
    finish_kernel(T* out, float* lse, const float* o, const float* m, const float* l, const T* sinks, std::int64_t rows,
                  std::int64_t tokens, int H, int packs) {
  const Row row(tokens, H);
  float logsumexp = 0.0F;
  if (row.head < rows) {
    const float row_max = m[row.index], sink = sinks == nullptr ? -INFINITY : widened(sinks[row.head % H]);
    const float largest = fmaxf(row_max, sink), base = largest == -INFINITY ? 0.0F : largest;
    const float shrink = expf(row_max - base), sum = fmaf(l[row.index], shrink, expf(sink - base));
    const float factor = sum == 0.0F ? 0.0F : shrink / sum;
    logsumexp = sum == 0.0F ? -INFINITY : base + logf(sum);
    for (int i = row.lane; i < packs; i += lanes) {
      Pack<float, W> pack = load<W>(o + (row.head * packs + i) * W);
#pragma unroll
      for (int e = 0; e < W; ++e) pack.at[e] *= factor;
      store(out + (row.head * packs + i) * W, rounded<T>(pack));
    }
  }
  __syncwarp();  // all lanes have read m; lse may be its memory
  if (row.lane == 0 && row.head < rows) lse[row.index] = logsumexp;
}

template <class T, int W>
__global__ void __launch_bounds__(threads)
    delta_kernel(float* delta, const T* dout, const T* out, std::int64_t rows, std::int64_t tokens, int H, int packs) {
  const Row row(tokens, H);
  float sum = 0.0F;
  for (int i = row.lane; row.head < rows && i < packs; i += lanes) {
    const std::int64_t at = (row.head * packs + i) * W;
    const Pack<float, W> x = widened(load<W>(dout + at)), y = widened(load<W>(out + at));
#pragma unroll
    for (int e = 0; e < W; ++e) sum = fmaf(x.at[e], y.at[e], sum);
  }
#pragma unroll
  for (int apart = 1; apart < lanes; apart *= 2) sum += __shfl_xor_sync(0xFFFFFFFFU, sum, apart);
  if (row.lane == 0 && row.head < rows) delta[row.index] = sum;
}

}  // namespace

void attention_finalize(Stream& stream, const AttentionState& state, const TensorView& out, const TensorView& lse,
                        const ConstTensorView& sinks) {
  const std::int64_t T = out.dim(1), H = out.dim(2), D = out.dim(3), rows = lse.numel();
  dispatch_storage(out.dtype, [&]<class E>() {
    with_packs<pack_width<E>>(D % pack_width<E> == 0 && aligned_to(16, {out.data, state.o.data}), [&]<int W>() {
      launch<finish_kernel<E, W>>(stream.cuda(), dim3(blocks_for(rows * lanes, threads)), dim3(threads), 0, out.as<E>(),
                                  lse.as<float>(), state.o.as<float>(), state.m.as<float>(), state.l.as<float>(),
                                  sinks.empty() ? nullptr : sinks.as<E>(), rows, T, static_cast<int>(H),
                                  static_cast<int>(D / W));
    });
  });
}

void attention_delta(Stream& stream, const TensorView& delta, const ConstTensorView& dout, const ConstTensorView& out) {
  const std::int64_t T = out.dim(1), H = out.dim(2), D = out.dim(3), rows = delta.numel();
  dispatch_storage(out.dtype, [&]<class E>() {
    with_packs<pack_width<E>>(D % pack_width<E> == 0 && aligned_to(16, {out.data, dout.data}), [&]<int W>() {
      launch<delta_kernel<E, W>>(stream.cuda(), dim3(blocks_for(rows * lanes, threads)), dim3(threads), 0,
                                 delta.as<float>(), dout.as<E>(), out.as<E>(), rows, T, static_cast<int>(H),
                                 static_cast<int>(D / W));
    });
  });
}

}  // namespace ringtrain::cuda
