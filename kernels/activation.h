// The activation of a feedforward: SwiGLU and GEGLU (Shazeer, "GLU Variants Improve Transformer", 2020, eq. 5, as
// silu(gate) * up and gelu(gate) * up), or an activation without a gate. All tensors of a call must have one shape and
// one dtype; otherwise Error(usage) that names the caller's line. No communication.
#pragma once

#include "framework/const_tensor_view.h"
#include "framework/stream.h"
#include "framework/tensor.h"

namespace ringtrain {

/// silu(x) = x sigmoid(x). gelu(x) = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), the tanh form of GPT-2 (Hendrycks
/// and Gimpel, 2016).
enum class Activation { silu, gelu };

/// y = activation(gate) * up, or activation(gate) if up is left out as {}. y may be the memory of gate or up.
void activation_forward(Stream& stream, Activation activation, const TensorView& y, const ConstTensorView& gate,
                        const ConstTensorView& up, const CallerLine& line = CallerLine::current());
/// dgate, dup = the gradients of gate and up, from dy, the gradient of y; dup is left out with up. Fills y as forward
/// does, unless it is left out. dgate may be the memory of gate, dup that of up, and y that of dy.
void activation_backward(Stream& stream, Activation activation, const TensorView& dgate, const TensorView& dup,
                         const ConstTensorView& dy, const ConstTensorView& gate, const ConstTensorView& up,
                         const TensorView& y = {}, const CallerLine& line = CallerLine::current());

}  // namespace ringtrain
