// Activations on the GPU: one pass, limited by memory. tanh form of GELU: 0.5 (1 + tanh(u)) = sigmoid(2u).
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/map.cuh"

namespace ringtrain::cuda {

namespace {

/// sigmoid(x) and sigmoid(-x), both to full relative precision: only the exponential of -|x| is used.
struct Sigmoid {
  float of_x, of_minus_x;
};
__device__ __forceinline__ Sigmoid sigmoid(float x) {
  const float e = __expf(-fabsf(x)), large = __fdividef(1.0f, 1.0f + e), small = e * large;
  return {x < 0 ? small : large, x < 0 ? large : small};
}

/// An activation x sigmoid(argument(x)), and the argument's derivative: argument(x) = x.
struct Silu {
  static __device__ __forceinline__ float argument(float x) { return x; }
  static __device__ __forceinline__ float slope(float) { return 1; }
};

/// The same with 2u = 2 sqrt(2/pi) (x + 0.044715 x^3).
struct Gelu {
  static constexpr float two_root_two_over_pi = 1.5957691216057307117f, cubic = 0.044715f;
  static __device__ __forceinline__ float argument(float x) { return two_root_two_over_pi * x * (1 + cubic * x * x); }
  static __device__ __forceinline__ float slope(float x) { return two_root_two_over_pi * (1 + 3 * cubic * x * x); }
};

template <class Formula, int inputs>
struct Forward {
  __device__ void operator()(const float (&in)[inputs], float (&out)[1]) const {
    out[0] = in[0] * sigmoid(Formula::argument(in[0])).of_x;
    if constexpr (inputs == 2) out[0] *= in[1];
  }
};

/// The last output is what forward returns.
template <class Formula, int inputs>
struct Backward {
  __device__ void operator()(const float (&in)[inputs], float (&out)[inputs]) const {
    const float dy = in[0], gate = in[1], up = inputs == 3 ? in[inputs - 1] : 1.0f;
    const Sigmoid s = sigmoid(Formula::argument(gate));
    // With a = argument(g): d (g s(a)) / dg = s(a) + g s(a) s(-a) a'
    out[0] = dy * up * s.of_x * (1 + gate * s.of_minus_x * Formula::slope(gate));
    if constexpr (inputs == 3) out[1] = dy * gate * s.of_x;
    out[inputs - 1] = gate * s.of_x * up;
  }
};

template <class Formula>
void forward(Stream& stream, const TensorView& y, const ConstTensorView& gate, const ConstTensorView& up) {
  dispatch_storage(y.dtype, [&]<class T>() {
    const auto run = [&]<int inputs>(const MapTensors<T, T, 1, inputs>& tensors) {
      map(stream.cuda(), y.numel(), Forward<Formula, inputs>{}, tensors);
    };
    if (up.empty()) return run(MapTensors<T, T, 1, 1>{{y.as<T>()}, {gate.as<T>()}});
    run(MapTensors<T, T, 1, 2>{{y.as<T>()}, {gate.as<T>(), up.as<T>()}});
  });
}

template <class Formula>
void backward(Stream& stream, const TensorView& dgate, const TensorView& dup, const ConstTensorView& dy,
              const ConstTensorView& gate, const ConstTensorView& up, const TensorView& y) {
  dispatch_storage(dy.dtype, [&]<class T>() {
    T *const dgate_data = dgate.as<T>(), *const y_data = static_cast<T*>(y.data);
    const T *const dy_data = dy.as<T>(), *const gate_data = gate.as<T>();
    const auto run = [&]<int inputs>(const MapTensors<T, T, inputs, inputs>& tensors) {
      map(stream.cuda(), dy.numel(), Backward<Formula, inputs>{}, tensors);
    };
    if (up.empty()) return run(MapTensors<T, T, 2, 2>{{dgate_data, y_data}, {dy_data, gate_data}});
    run(MapTensors<T, T, 3, 3>{{dgate_data, dup.as<T>(), y_data}, {dy_data, gate_data, up.as<T>()}});
  });
}

}  // namespace

void activation_forward(Stream& stream, Activation activation, const TensorView& y, const ConstTensorView& gate,
                        const ConstTensorView& up) {
  (activation == Activation::gelu ? forward<Gelu> : forward<Silu>)(stream, y, gate, up);
}

void activation_backward(Stream& stream, Activation activation, const TensorView& dgate, const TensorView& dup,
                         const ConstTensorView& dy, const ConstTensorView& gate, const ConstTensorView& up,
                         const TensorView& y) {
  (activation == Activation::gelu ? backward<Gelu> : backward<Silu>)(stream, dgate, dup, dy, gate, up, y);
}

}  // namespace ringtrain::cuda
