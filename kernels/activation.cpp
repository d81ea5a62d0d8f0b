// Activations on the CPU: one pass, a vector at a time. tanh form of GELU: 0.5 (1 + tanh(u)) = sigmoid(2u).
#include "kernels/activation.h"

#include "kernels/check.h"
#include "kernels/cpu/loops.h"
#include "kernels/cuda/cuda_kernels.h"

namespace ringtrain {

using cpu::Sigmoid;
using cpu::Vector;

namespace {

/// An activation x sigmoid(argument(x)), and the argument's derivative: argument(x) = x.
template <class T>
struct Silu {
  static Vector<T> argument(Vector<T> x) { return x; }
  static Vector<T> slope(Vector<T>) { return cpu::broadcast<T>(1); }
};

/// The same with 2u = 2 sqrt(2/pi) (x + 0.044715 x^3).
template <class T>
struct Gelu {
  static constexpr T two_root_two_over_pi = static_cast<T>(1.5957691216057307117);
  static constexpr double cubic = 0.044715;
  static Vector<T> argument(Vector<T> x) { return two_root_two_over_pi * x * (1 + static_cast<T>(cubic) * x * x); }
  static Vector<T> slope(Vector<T> x) { return two_root_two_over_pi * (1 + static_cast<T>(3 * cubic) * x * x); }
};

/// Returns what the activation is multiplied by; up is null without a gate.
template <class A>
Vector<A> factor_at(const auto& at, const auto* up) {
  return up != nullptr ? at(up) : cpu::broadcast<A>(1);
}

template <template <class> class Formula>
void forward(Stream& stream, const TensorView& y, const ConstTensorView& gate, const ConstTensorView& up) {
  dispatch_dtype(y.dtype, [&]<class S, class A>() {
    S* const y_data = y.as<S>();
    const S *const gate_data = gate.as<S>(), *const up_data = static_cast<const S*>(up.data);
    cpu::map<A>(stream.pool(), y.numel(), [=](auto at) {
      const Vector<A> g = at(gate_data), u = factor_at<A>(at, up_data);
      at.put(y_data, g * cpu::sigmoid<A>(Formula<A>::argument(g)).of_x * u);
    });
  });
}

template <template <class> class Formula>
void backward(Stream& stream, const TensorView& dgate, const TensorView& dup, const ConstTensorView& dy,
              const ConstTensorView& gate, const ConstTensorView& up, const TensorView& y) {
  dispatch_dtype(dy.dtype, [&]<class S, class A>() {
    S *const dgate_data = dgate.as<S>(), *const dup_data = static_cast<S*>(dup.data);
    S* const y_data = static_cast<S*>(y.data);
    const S *const dy_data = dy.as<S>(), *const gate_data = gate.as<S>();
    const S* const up_data = static_cast<const S*>(up.data);
    cpu::map<A>(stream.pool(), dy.numel(), [=](auto at) {
      const Vector<A> g = at(gate_data), d = at(dy_data), u = factor_at<A>(at, up_data);
      const Sigmoid<A> s = cpu::sigmoid<A>(Formula<A>::argument(g));
      // With a = argument(g): d (g s(a)) / dg = s(a) + g s(a) s(-a) a'
      at.put(dgate_data, d * u * s.of_x * (1 + g * s.of_minus_x * Formula<A>::slope(g)));
      if (dup_data != nullptr) at.put(dup_data, d * g * s.of_x);
      if (y_data != nullptr) at.put(y_data, g * s.of_x * u);
    });
  });
}

}  // namespace

void activation_forward(Stream& stream, Activation activation, const TensorView& y, const ConstTensorView& gate,
                        const ConstTensorView& up, const CallerLine& line) {
  check_number(stream, y, "y", line);
  check_like(stream, gate, "gate", y, "y", line);
  if (is_given(up)) check_like(stream, up, "up", y, "y", line);
  if (stream.on_cuda()) return cuda::activation_forward(stream, activation, y, gate, up);
  (activation == Activation::gelu ? forward<Gelu> : forward<Silu>)(stream, y, gate, up);
}

void activation_backward(Stream& stream, Activation activation, const TensorView& dgate, const TensorView& dup,
                         const ConstTensorView& dy, const ConstTensorView& gate, const ConstTensorView& up,
                         const TensorView& y, const CallerLine& line) {
  check_number(stream, dy, "dy", line);
  check_like(stream, dgate, "dgate", dy, "dy", line);
  check_like(stream, gate, "gate", dy, "dy", line);
  if (is_given(up) || is_given(dup)) {
    check_like(stream, dup, "dup", dy, "dy", line);
    check_like(stream, up, "up", dy, "dy", line);
  }
  if (is_given(y)) check_like(stream, y, "y", dy, "dy", line);
  if (stream.on_cuda()) return cuda::activation_backward(stream, activation, dgate, dup, dy, gate, up, y);
  (activation == Activation::gelu ? backward<Gelu> : backward<Silu>)(stream, dgate, dup, dy, gate, up, y);
}

}  // namespace ringtrain
