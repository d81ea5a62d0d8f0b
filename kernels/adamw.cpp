// AdamW on the CPU: one pass over chunks; the factors that depend on the step are computed once, in double.
#include "kernels/adamw.h"

#include <cmath>

#include "kernels/adamw_moments.h"
#include "kernels/check.h"
#include "kernels/cpu/loops.h"
#include "kernels/cuda/cuda_kernels.h"

namespace ringtrain {

namespace {

void check_slice(const AdamWSlice& slice) {
  ensure(slice.m.numel() == slice.w.numel(), "adamw m is shaped as w");
  ensure(slice.m.dtype == slice.w.dtype || (slice.w.dtype == DType::float32 && slice.m.dtype == DType::bfloat16),
         "adamw m has the dtype of w, or bfloat16 with weights of float32");
  ensure(slice.v.numel() == slice.m.numel() && slice.v.dtype == slice.m.dtype, "adamw v is like m");
  ensure(slice.g.numel() == slice.w.numel(), "adamw g is shaped as w");
  ensure(slice.g.dtype == slice.w.dtype || (slice.w.dtype == DType::float32 && slice.g.dtype == DType::bfloat16),
         "adamw g has the dtype of w, or bfloat16 with weights of float32");
  ensure(slice.rounded.empty() || slice.rounded.numel() == slice.w.numel(), "adamw rounded weights are shaped as w");
  ensure(slice.rounded.empty() || (slice.w.dtype == DType::float32 && slice.rounded.dtype == DType::bfloat16),
         "adamw rounds weights of float32 to bfloat16");
}

template <class T, class M, class G>
void update(ThreadPool& pool, const AdamWSlice& slice, const AdamW& hyper) {
  const auto step = static_cast<double>(hyper.step);
  T* const w_data = slice.w.as<T>();
  M *const m_data = slice.m.as<M>(), *const v_data = slice.v.as<M>();
  const G* const g_data = slice.g.as<G>();
  BFloat16* const rounded_data = slice.rounded.empty() ? nullptr : slice.rounded.as<BFloat16>();
  const auto b1 = static_cast<T>(hyper.beta1), one_minus_b1 = static_cast<T>(1 - hyper.beta1);
  const auto b2 = static_cast<T>(hyper.beta2), one_minus_b2 = static_cast<T>(1 - hyper.beta2);
  // m^ = m / (1 - b1^step), v^ = v / (1 - b2^step)
  const auto m_correction = static_cast<T>(1 / (1 - std::pow(hyper.beta1, step)));
  const auto v_correction = static_cast<T>(1 / (1 - std::pow(hyper.beta2, step)));
  const auto scale = static_cast<T>(hyper.gradient_scale), eps = static_cast<T>(hyper.eps);
  const auto lr = static_cast<T>(hyper.lr), decay = static_cast<T>(slice.weight_decay);
  const std::uint32_t first_number = number_of(slice.first_element, hyper.seed, hyper.step);
  cpu::for_chunks(pool, slice.w.numel(), cpu::chunk_elements, [=](std::int64_t begin, std::int64_t end) {
#if defined(__clang__)
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
    for (std::int64_t i = begin; i < end; ++i) {
      const T gradient = widened(g_data[i]) * scale;
      const T first = b1 * widened(m_data[i]) + one_minus_b1 * gradient;
      const T second = b2 * widened(v_data[i]) + one_minus_b2 * gradient * gradient;
      store_moments(m_data[i], v_data[i], first, second, first_number + static_cast<std::uint32_t>(i));
      w_data[i] -= lr * (first * m_correction / (std::sqrt(second * v_correction) + eps) + decay * w_data[i]);
    }
    if constexpr (std::is_same_v<T, float>) {
      if (rounded_data == nullptr) return;
      cpu::for_vectors<T>(begin, end, [=](auto at) { at.put(rounded_data, at(w_data)); });
    }
  });
}

}  // namespace

void adamw_update(Stream& stream, std::span<const AdamWSlice> slices, const AdamW& hyper) {
  ensure(hyper.step >= 1, "adamw counts its steps from 1");
  for (const AdamWSlice& slice : slices) check_slice(slice);
  if (stream.on_cuda()) return cuda::adamw_update(stream, slices, hyper);
  for (const AdamWSlice& slice : slices) {
    dispatch_dtype(slice.m.dtype, [&]<class M, class T>() {
      dispatch_dtype(slice.g.dtype, [&]<class G, class A>() {
        if constexpr (std::is_same_v<A, T>) update<T, M, G>(stream.pool(), slice, hyper);
      });
    });
  }
}

}  // namespace ringtrain
