// SwiGLU and GEGLU (Shazeer, "GLU Variants Improve Transformer", 2020, eq. 5, as silu(gate) * up and gelu(gate) * up)
// and GELU (Hendrycks and Gimpel, 2016, the tanh form of GPT-2). All tensors of a call must have one shape and one
// dtype; otherwise Error(usage) that names the caller's line. No communication. Backward overwrites its outputs. dgate
// may be the memory of gate, dup that of up, dx that of x.
#pragma once

#include "framework/const_tensor_view.h"
#include "framework/stream.h"
#include "framework/tensor.h"

namespace ringtrain {

/// y = gate * sigmoid(gate) * up. y may be the memory of gate or up.
void swiglu_forward(Stream& stream, const TensorView& y, const ConstTensorView& gate, const ConstTensorView& up,
                    const CallerLine& line = CallerLine::current());
/// dgate, dup = the gradients of gate and up, from dy, the gradient of y.
void swiglu_backward(Stream& stream, const TensorView& dgate, const TensorView& dup, const ConstTensorView& dy,
                     const ConstTensorView& gate, const ConstTensorView& up,
                     const CallerLine& line = CallerLine::current());

/// y = gelu(gate) * up, with gelu as defined below. y may be the memory of gate or up.
void geglu_forward(Stream& stream, const TensorView& y, const ConstTensorView& gate, const ConstTensorView& up,
                   const CallerLine& line = CallerLine::current());
/// dgate, dup = the gradients of gate and up, from dy, the gradient of y.
void geglu_backward(Stream& stream, const TensorView& dgate, const TensorView& dup, const ConstTensorView& dy,
                    const ConstTensorView& gate, const ConstTensorView& up,
                    const CallerLine& line = CallerLine::current());

/// y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
void gelu_forward(Stream& stream, const TensorView& y, const ConstTensorView& x,
                  const CallerLine& line = CallerLine::current());
/// dx = the gradient of x, from dy, the gradient of y.
void gelu_backward(Stream& stream, const TensorView& dx, const ConstTensorView& dy, const ConstTensorView& x,
                   const CallerLine& line = CallerLine::current());

}  // namespace ringtrain
