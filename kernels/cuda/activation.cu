// SwiGLU, GEGLU and GELU on the GPU: one pass, bound by memory. tanh form of GELU: 0.5 (1 + tanh(u)) = sigmoid(2u).
#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/map.cuh"

namespace ringtrain::cuda {

namespace {

/// sigmoid(x) and sigmoid(-x), both to full relative precision: the exponential is taken of -|x| only.
struct Sigmoid {
  float of_x, of_minus_x;
};
__device__ __forceinline__ Sigmoid sigmoid(float x) {
  const float e = __expf(-fabsf(x)), large = __fdividef(1.0f, 1.0f + e), small = e * large;
  return {x < 0 ? small : large, x < 0 ? large : small};
}

struct SwigluForward {
  __device__ void operator()(const float (&in)[2], float (&out)[1]) const {
    const float gate = in[0], up = in[1];
    out[0] = gate * sigmoid(gate).of_x * up;
  }
};

struct SwigluBackward {
  __device__ void operator()(const float (&in)[3], float (&out)[2]) const {
    const float dy = in[0], gate = in[1], up = in[2];
    const Sigmoid s = sigmoid(gate);
    // d silu(g) / dg = s(g) + g s(g) s(-g)
    out[0] = dy * up * s.of_x * (1 + gate * s.of_minus_x);
    out[1] = dy * gate * s.of_x;
  }
};

/// 2u = 2 sqrt(2/pi) (x + 0.044715 x^3), and its derivative.
constexpr float two_root_two_over_pi = 1.5957691216057307117f, cubic = 0.044715f;

struct GeluForward {
  __device__ void operator()(const float (&in)[1], float (&out)[1]) const {
    const float x = in[0];
    out[0] = x * sigmoid(two_root_two_over_pi * x * (1 + cubic * x * x)).of_x;
  }
};

struct GeluBackward {
  __device__ void operator()(const float (&in)[2], float (&out)[1]) const {
    const float dy = in[0], x = in[1];
    const Sigmoid s = sigmoid(two_root_two_over_pi * x * (1 + cubic * x * x));
    const float slope = two_root_two_over_pi * (1 + 3 * cubic * x * x);
    out[0] = dy * s.of_x * (1 + x * s.of_minus_x * slope);
  }
};

struct GegluForward {
  __device__ void operator()(const float (&in)[2], float (&out)[1]) const {
    const float gate = in[0], up = in[1];
    out[0] = gate * sigmoid(two_root_two_over_pi * gate * (1 + cubic * gate * gate)).of_x * up;
  }
};

struct GegluBackward {
  __device__ void operator()(const float (&in)[3], float (&out)[2]) const {
    const float dy = in[0], gate = in[1], up = in[2];
    const Sigmoid s = sigmoid(two_root_two_over_pi * gate * (1 + cubic * gate * gate));
    const float slope = two_root_two_over_pi * (1 + 3 * cubic * gate * gate);
    out[0] = dy * up * s.of_x * (1 + gate * s.of_minus_x * slope);
    out[1] = dy * gate * s.of_x;
  }
};

}  // namespace

void swiglu_forward(Stream& stream, const TensorView& y, const ConstTensorView& gate, const ConstTensorView& up) {
  dispatch_storage(y.dtype, [&]<class T>() {
    map(stream.cuda(), y.numel(), SwigluForward{}, MapTensors<T, T, 1, 2>{{y.as<T>()}, {gate.as<T>(), up.as<T>()}});
  });
}

void swiglu_backward(Stream& stream, const TensorView& dgate, const TensorView& dup, const ConstTensorView& dy,
                     const ConstTensorView& gate, const ConstTensorView& up) {
  dispatch_storage(dy.dtype, [&]<class T>() {
    map(stream.cuda(), dy.numel(), SwigluBackward{},
        MapTensors<T, T, 2, 3>{{dgate.as<T>(), dup.as<T>()}, {dy.as<T>(), gate.as<T>(), up.as<T>()}});
  });
}

void geglu_forward(Stream& stream, const TensorView& y, const ConstTensorView& gate, const ConstTensorView& up) {
  dispatch_storage(y.dtype, [&]<class T>() {
    map(stream.cuda(), y.numel(), GegluForward{}, MapTensors<T, T, 1, 2>{{y.as<T>()}, {gate.as<T>(), up.as<T>()}});
  });
}

void geglu_backward(Stream& stream, const TensorView& dgate, const TensorView& dup, const ConstTensorView& dy,
                    const ConstTensorView& gate, const ConstTensorView& up) {
  dispatch_storage(dy.dtype, [&]<class T>() {
    map(stream.cuda(), dy.numel(), GegluBackward{},
        MapTensors<T, T, 2, 3>{{dgate.as<T>(), dup.as<T>()}, {dy.as<T>(), gate.as<T>(), up.as<T>()}});
  });
}

void gelu_forward(Stream& stream, const TensorView& y, const ConstTensorView& x) {
  dispatch_storage(y.dtype, [&]<class T>() {
    map(stream.cuda(), y.numel(), GeluForward{}, MapTensors<T, T, 1, 1>{{y.as<T>()}, {x.as<T>()}});
  });
}

void gelu_backward(Stream& stream, const TensorView& dx, const ConstTensorView& dy, const ConstTensorView& x) {
  dispatch_storage(dx.dtype, [&]<class T>() {
    map(stream.cuda(), dx.numel(), GeluBackward{}, MapTensors<T, T, 1, 2>{{dx.as<T>()}, {dy.as<T>(), x.as<T>()}});
  });
}

}  // namespace ringtrain::cuda
