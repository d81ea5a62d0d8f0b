// y = x W^T + b, plus an adapter's contribution: a linear layer's weights and their gradients, found by id. It keeps
// nothing for backward. All tensors have the model's dtype. A tensor that does not fit is an Error(usage) that names
// the caller's line.
#pragma once

#include "kernels/matmul.h"
#include "layers/lora.h"

namespace ringtrain {

class Linear {
 public:
  /// workspace: for its adapter; null if the layer never has one.
  Linear(ParameterStore& parameters, const LinearIds& ids, const LoraWorkspace* workspace = nullptr)
      : parameters_(&parameters), ids_(ids), lora_(parameters, ids, workspace) {}

  /// y[n, O] = x[n, I] W^T + b + residual[n, O]. residual may be empty, and may be y.
  void forward(Stream& stream, const TensorView& y, const ConstTensorView& x, const ConstTensorView& residual = {},
               const CallerLine& line = CallerLine::current()) const {
    linear_forward(stream, y, x, parameters_->weight(ids_.weight),
                   ids_.bias >= 0 ? parameters_->weight(ids_.bias) : TensorView{}, residual, line);
    lora_.forward(stream, y, x);
  }
  /// dx[n, I] = dy[n, O] W, or += if accumulate.
  void backward_input(Stream& stream, const TensorView& dx, const ConstTensorView& dy, bool accumulate,
                      const CallerLine& line = CallerLine::current()) const {
    linear_backward_input(stream, dx, dy, parameters_->weight(ids_.weight), accumulate, line);
    lora_.backward_input(stream, dx, dy);
  }
  /// Adds dy^T x to W's gradient and the sum of dy to b's, if they are trained, and an adapter's gradients to its own.
  /// The first call overwrites the gradients (begin_gradient()).
  void backward_weight(Stream& stream, const ConstTensorView& dy, const ConstTensorView& x,
                       const CallerLine& line = CallerLine::current()) const {
    lora_.backward_weight(stream, dy, x);
    const bool trains_bias = ids_.bias >= 0 && parameters_->trains(ids_.bias);
    const bool trains_weight = parameters_->trains(ids_.weight);
    if (!trains_weight && !trains_bias) return;
    const bool bias_adds = trains_bias && parameters_->begin_gradient(ids_.bias);
    const bool accumulate = trains_weight ? parameters_->begin_gradient(ids_.weight) : bias_adds;
    linear_backward_weight(stream, trains_weight ? parameters_->gradient(ids_.weight) : TensorView{},
                           trains_bias ? parameters_->gradient(ids_.bias) : TensorView{}, dy, x, accumulate, line);
  }

 private:
  ParameterStore* parameters_;
  LinearIds ids_;
  Lora lora_;
};

}  // namespace ringtrain
