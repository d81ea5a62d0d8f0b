// The gradient of attention sinks on the GPU: sums over rows by head.
#include <cmath>

#include "kernels/cuda/column_sums.cuh"
#include "kernels/cuda/cuda_kernels.h"

namespace ringtrain::cuda {

namespace {

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

void attention_sinks_backward(Stream& stream, const TensorView& dsinks, const ConstTensorView& lse,
                              const ConstTensorView& delta, const ConstTensorView& sinks) {
  const std::int64_t B = lse.dim(0), H = lse.dim(1), T = lse.dim(2);
  dispatch_storage(sinks.dtype, [&]<class E>() {
    add_column_sums<1>(stream.cuda(), dsinks.as<float>(), B * T, H, false,
                       SinkTerm<E>{lse.as<float>(), delta.as<float>(), sinks.as<E>(), T, H});
  });
}

}  // namespace ringtrain::cuda
