// AdamW on the CPU: one pass over chunks; the factors that depend on the step are made once, in double.
#include "kernels/adamw.h"

#include <cmath>

#include "kernels/check.h"
#include "kernels/cpu/loops.h"

namespace ringtrain {

void adamw_update(Stream& stream, const TensorView& w, const TensorView& m, const TensorView& v, const TensorView& g,
                  const AdamW& hyper) {
  require_cpu(stream, "adamw");
  check_flat(m, w, "adamw m is shaped as w");
  check_flat(v, w, "adamw v is shaped as w");
  check_flat(g, w, "adamw g is shaped as w");
  ensure(hyper.step >= 1, "adamw counts its steps from 1");
  const auto step = static_cast<double>(hyper.step);
  dispatch_float(w.dtype, [&]<class T>() {
    T *const w_data = w.as<T>(), *const m_data = m.as<T>(), *const v_data = v.as<T>();
    const T* const g_data = g.as<T>();
    const auto b1 = static_cast<T>(hyper.beta1), one_minus_b1 = static_cast<T>(1 - hyper.beta1);
    const auto b2 = static_cast<T>(hyper.beta2), one_minus_b2 = static_cast<T>(1 - hyper.beta2);
    // m^ = m / (1 - b1^step), v^ = v / (1 - b2^step)
    const auto m_correction = static_cast<T>(1 / (1 - std::pow(hyper.beta1, step)));
    const auto v_correction = static_cast<T>(1 / (1 - std::pow(hyper.beta2, step)));
    const auto scale = static_cast<T>(hyper.gradient_scale), eps = static_cast<T>(hyper.eps);
    const auto lr = static_cast<T>(hyper.lr), decay = static_cast<T>(hyper.weight_decay);
    cpu::for_chunks(stream.pool(), w.numel(), cpu::chunk_elements, [=](std::int64_t begin, std::int64_t end) {
#pragma GCC ivdep
      for (std::int64_t i = begin; i < end; ++i) {
        const T gradient = g_data[i] * scale;
        const T first = b1 * m_data[i] + one_minus_b1 * gradient;
        const T second = b2 * v_data[i] + one_minus_b2 * gradient * gradient;
        m_data[i] = first;
        v_data[i] = second;
        w_data[i] -= lr * (first * m_correction / (std::sqrt(second * v_correction) + eps) + decay * w_data[i]);
      }
    });
  });
}

}  // namespace ringtrain
