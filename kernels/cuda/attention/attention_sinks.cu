// Attention sinks on the GPU: one pass that finishes rows, and sums over rows by head. A warp processes a row of a
// head.
#include <cmath>

#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/cuda_kernels.h"

namespace ringtrain::cuda {

namespace {

constexpr int threads = 256, rows_of_block = threads / 32;

template <class T>
__global__ void __launch_bounds__(threads)
    finish_kernel(T* const out, float* const lse, const float* const o, const float* const m, const float* const l,
                  const T* const sinks, const std::int64_t rows, const std::int64_t tokens, const int H, const int D) {
  const std::int64_t head = std::int64_t{blockIdx.x} * rows_of_block + threadIdx.x / 32;  // of B * T * H
  const int lane = static_cast<int>(threadIdx.x) % 32;
  if (head >= rows) return;
  const std::int64_t token = head / H, row = (token / tokens * H + head % H) * tokens + token % tokens;
  const float sink = widened(sinks[head % H]), row_max = m[row], largest = fmaxf(row_max, sink);
  const float shrink = expf(row_max - largest), sum = fmaf(l[row], shrink, expf(sink - largest)), factor = shrink / sum;
  for (int d = lane; d < D; d += 32) {
    store(out + head * D + d, rounded<T>(Pack<float, 1>{{o[head * D + d] * factor}}));
  }
  __syncwarp();  // all lanes have read m; lse may be its memory
  if (lane == 0) lse[row] = largest + logf(sum);
}

/// -e^(s - L') delta' of token t (of B * T) and head h.
template <class T>
struct SinkTerm {
  const float *lse, *delta;  // [B, H, tokens]
  const T* sinks;
  std::int64_t tokens, H;
  template <int W>
  __device__ Pack<float, W> at(std::int64_t t, std::int64_t h) const {
    static_assert(W == 1);
    const std::int64_t row = (t / tokens * H + h) * tokens + t % tokens;
    return {{-expf(widened(sinks[h]) - lse[row]) * delta[row]}};
  }
};

}  // namespace

void attention_sinks_finalize(Stream& stream, const AttentionState& state, const TensorView& out, const TensorView& lse,
                              const ConstTensorView& sinks) {
  const std::int64_t rows = lse.numel();
  dispatch_storage(out.dtype, [&]<class T>() {
    launch<finish_kernel<T>>(stream.cuda(), dim3(blocks_for(rows, rows_of_block)), dim3(threads), 0, out.as<T>(),
                             lse.as<float>(), state.o.as<float>(), state.m.as<float>(), state.l.as<float>(),
                             sinks.as<T>(), rows, out.dim(1), static_cast<int>(out.dim(2)),
                             static_cast<int>(out.dim(3)));
  });
}

void attention_sinks_backward(Stream& stream, const TensorView& dsinks, const ConstTensorView& lse,
                              const ConstTensorView& delta, const ConstTensorView& sinks) {
  const std::int64_t B = lse.dim(0), H = lse.dim(1), T = lse.dim(2);
  dispatch_storage(sinks.dtype, [&]<class E>() {
    add_column_sums<1>(stream.cuda(), dsinks.as<float>(), B * T, H, false,
                       SinkTerm<E>{lse.as<float>(), delta.as<float>(), sinks.as<E>(), T, H});
  });
}

}  // namespace ringtrain::cuda
