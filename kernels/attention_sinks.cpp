#include "kernels/attention_sinks.h"

#include <cmath>

#include "kernels/check.h"
#include "kernels/cpu/loops.h"
#include "kernels/cuda/cuda_kernels.h"

namespace ringtrain {

void attention_sinks_backward(Stream& stream, const TensorView& dsinks, const ConstTensorView& lse,
                              const ConstTensorView& delta, const ConstTensorView& sinks) {
  ensure(lse.shape.rank() == 3, "attention lse is [B, H, T]");
  const std::int64_t B = lse.dim(0), H = lse.dim(1), T = lse.dim(2);
  check_tensor(delta, lse.shape, lse.dtype, "attention delta is [B, H, T]");
  check_tensor(dsinks, {H}, lse.dtype, "the gradient of attention sinks is [H]");
  check_tensor(sinks, {H}, sinks.dtype, "attention sinks are [H]");
  ensure(accumulator(sinks.dtype) == lse.dtype, "attention lse has the accumulator of the sinks' dtype");
  if (stream.on_cuda()) return cuda::attention_sinks_backward(stream, dsinks, lse, delta, sinks);
  dispatch_dtype(sinks.dtype, [&]<class S, class A>() {
    const A *const l = lse.as<A>(), *const d = delta.as<A>();
    const S* const sinks_data = sinks.as<S>();
    A* const gradient = dsinks.as<A>();
    cpu::for_rows(stream.pool(), H, B * T, [=](std::int64_t h) {
      const auto sink = static_cast<double>(cpu::widened(sinks_data[h]));
      double sum = 0;
      for (std::int64_t b = 0; b < B; ++b) {
        for (std::int64_t row = (b * H + h) * T; row < (b * H + h + 1) * T; ++row) {
          sum += std::exp(sink - static_cast<double>(l[row])) * static_cast<double>(d[row]);
        }
      }
      gradient[h] -= static_cast<A>(sum);
    });
  });
}

}  // namespace ringtrain
