// SwiGLU, GEGLU, and GELU on the GPU: one pass, limited by memory. tanh form of GELU: 0.5 (1 + tanh(u)) = sigmoid(2u).
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

template <class Activation, bool gated>
struct Forward {
  __device__ void operator()(const float (&in)[gated ? 2 : 1], float (&out)[1]) const {
    out[0] = in[0] * sigmoid(Activation::argument(in[0])).of_x;
    if constexpr (gated) out[0] *= in[1];
  }
};

template <class Activation, bool gated>
struct Backward {
  __device__ void operator()(const float (&in)[gated ? 3 : 2], float (&out)[gated ? 2 : 1]) const {
    const float dy = in[0], gate = in[1];
    float of_gate = dy;
    if constexpr (gated) of_gate *= in[2];
    const Sigmoid s = sigmoid(Activation::argument(gate));
    // With a = argument(g): d (g s(a)) / dg = s(a) + g s(a) s(-a) a'
    out[0] = of_gate * s.of_x * (1 + gate * s.of_minus_x * Activation::slope(gate));
    if constexpr (gated) out[1] = dy * gate * s.of_x;
  }
};

template <class Activation>
void gated_forward(Stream& stream, const TensorView& y, const ConstTensorView& gate, const ConstTensorView& up) {
  dispatch_storage(y.dtype, [&]<class T>() {
    map(stream.cuda(), y.numel(), Forward<Activation, true>{},
        MapTensors<T, T, 1, 2>{{y.as<T>()}, {gate.as<T>(), up.as<T>()}});
  });
}

template <class Activation>
void gated_backward(Stream& stream, const TensorView& dgate, const TensorView& dup, const ConstTensorView& dy,
                    const ConstTensorView& gate, const ConstTensorView& up) {
  dispatch_storage(dy.dtype, [&]<class T>() {
    map(stream.cuda(), dy.numel(), Backward<Activation, true>{},
        MapTensors<T, T, 2, 3>{{dgate.as<T>(), dup.as<T>()}, {dy.as<T>(), gate.as<T>(), up.as<T>()}});
  });
}

}  // namespace

void swiglu_forward(Stream& stream, const TensorView& y, const ConstTensorView& gate, const ConstTensorView& up) {
  gated_forward<Silu>(stream, y, gate, up);
}
void swiglu_backward(Stream& stream, const TensorView& dgate, const TensorView& dup, const ConstTensorView& dy,
                     const ConstTensorView& gate, const ConstTensorView& up) {
  gated_backward<Silu>(stream, dgate, dup, dy, gate, up);
}

void geglu_forward(Stream& stream, const TensorView& y, const ConstTensorView& gate, const ConstTensorView& up) {
  gated_forward<Gelu>(stream, y, gate, up);
}
void geglu_backward(Stream& stream, const TensorView& dgate, const TensorView& dup, const ConstTensorView& dy,
                    const ConstTensorView& gate, const ConstTensorView& up) {
  gated_backward<Gelu>(stream, dgate, dup, dy, gate, up);
}

void gelu_forward(Stream& stream, const TensorView& y, const ConstTensorView& x) {
  dispatch_storage(y.dtype, [&]<class T>() {
    map(stream.cuda(), y.numel(), Forward<Gelu, false>{}, MapTensors<T, T, 1, 1>{{y.as<T>()}, {x.as<T>()}});
  });
}

void gelu_backward(Stream& stream, const TensorView& dx, const ConstTensorView& dy, const ConstTensorView& x) {
  dispatch_storage(dx.dtype, [&]<class T>() {
    map(stream.cuda(), dx.numel(), Backward<Gelu, false>{},
        MapTensors<T, T, 1, 2>{{dx.as<T>()}, {dy.as<T>(), x.as<T>()}});
  });
}

}  // namespace ringtrain::cuda
