// SwiGLU, GEGLU, and GELU on the CPU: one pass, a vector at a time. tanh form of GELU: 0.5 (1 + tanh(u)) = sigmoid(2u).
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

/// y = activation(gate), times up if gated. on_gpu: the public function's GPU half.
template <template <class> class Activation, bool gated, class OnGpu>
void forward(Stream& stream, const TensorView& y, const ConstTensorView& gate, const ConstTensorView& up,
             const CallerLine& line, const OnGpu& on_gpu) {
  check_number(stream, y, "y", line);
  check_like(stream, gate, gated ? "gate" : "x", y, "y", line);
  if (gated) check_like(stream, up, "up", y, "y", line);
  if (stream.on_cuda()) return on_gpu();
  dispatch_dtype(y.dtype, [&]<class S, class A>() {
    S* const y_data = y.as<S>();
    const S *const gate_data = gate.as<S>(), *const up_data = gated ? up.as<S>() : nullptr;
    cpu::map<A>(stream.pool(), y.numel(), [=](auto at) {
      const Vector<A> g = at(gate_data);
      Vector<A> result = g * cpu::sigmoid<A>(Activation<A>::argument(g)).of_x;
      if constexpr (gated) result *= at(up_data);
      at.put(y_data, result);
    });
  });
}

template <template <class> class Activation, bool gated, class OnGpu>
void backward(Stream& stream, const TensorView& dgate, const TensorView& dup, const ConstTensorView& dy,
              const ConstTensorView& gate, const ConstTensorView& up, const CallerLine& line, const OnGpu& on_gpu) {
  check_number(stream, dy, "dy", line);
  check_like(stream, dgate, gated ? "dgate" : "dx", dy, "dy", line);
  if (gated) check_like(stream, dup, "dup", dy, "dy", line);
  check_like(stream, gate, gated ? "gate" : "x", dy, "dy", line);
  if (gated) check_like(stream, up, "up", dy, "dy", line);
  if (stream.on_cuda()) return on_gpu();
  dispatch_dtype(dy.dtype, [&]<class S, class A>() {
    S *const dgate_data = dgate.as<S>(), *const dup_data = gated ? dup.as<S>() : nullptr;
    const S *const dy_data = dy.as<S>(), *const gate_data = gate.as<S>();
    const S* const up_data = gated ? up.as<S>() : nullptr;
    cpu::map<A>(stream.pool(), dy.numel(), [=](auto at) {
      const Vector<A> g = at(gate_data), d = at(dy_data);
      Vector<A> of_gate = d;
      if constexpr (gated) of_gate *= at(up_data);
      const Sigmoid<A> s = cpu::sigmoid<A>(Activation<A>::argument(g));
      // With a = argument(g): d (g s(a)) / dg = s(a) + g s(a) s(-a) a'
      at.put(dgate_data, of_gate * s.of_x * (1 + g * s.of_minus_x * Activation<A>::slope(g)));
      if constexpr (gated) at.put(dup_data, d * g * s.of_x);
    });
  });
}

}  // namespace

void swiglu_forward(Stream& stream, const TensorView& y, const ConstTensorView& gate, const ConstTensorView& up,
                    const CallerLine& line) {
  forward<Silu, true>(stream, y, gate, up, line, [&] { cuda::swiglu_forward(stream, y, gate, up); });
}

void swiglu_backward(Stream& stream, const TensorView& dgate, const TensorView& dup, const ConstTensorView& dy,
                     const ConstTensorView& gate, const ConstTensorView& up, const CallerLine& line) {
  backward<Silu, true>(stream, dgate, dup, dy, gate, up, line,
                       [&] { cuda::swiglu_backward(stream, dgate, dup, dy, gate, up); });
}

void geglu_forward(Stream& stream, const TensorView& y, const ConstTensorView& gate, const ConstTensorView& up,
                   const CallerLine& line) {
  forward<Gelu, true>(stream, y, gate, up, line, [&] { cuda::geglu_forward(stream, y, gate, up); });
}

void geglu_backward(Stream& stream, const TensorView& dgate, const TensorView& dup, const ConstTensorView& dy,
                    const ConstTensorView& gate, const ConstTensorView& up, const CallerLine& line) {
  backward<Gelu, true>(stream, dgate, dup, dy, gate, up, line,
                       [&] { cuda::geglu_backward(stream, dgate, dup, dy, gate, up); });
}

void gelu_forward(Stream& stream, const TensorView& y, const ConstTensorView& x, const CallerLine& line) {
  forward<Gelu, false>(stream, y, x, {}, line, [&] { cuda::gelu_forward(stream, y, x); });
}

void gelu_backward(Stream& stream, const TensorView& dx, const ConstTensorView& dy, const ConstTensorView& x,
                   const CallerLine& line) {
  backward<Gelu, false>(stream, dx, {}, dy, x, {}, line, [&] { cuda::gelu_backward(stream, dx, dy, x); });
}

}  // namespace ringtrain
