// What is trained of a model, and adapters beside its weights, before a reference that knows of neither: it computes
// with W + (alpha / r) B A, and from W's gradient those of A and B follow by the chain rule.
#pragma once

#include "framework/parameter_table.h"
#include "reference/model.h"

namespace ringtrain {

class ReferenceAdapters {
 public:
  /// Adds scale * B A to the weights beside which adapters stand, and takes A and B out of them.
  ReferenceAdapters(double scale, const ParameterTable& table, reference::Tensors& weights);

  /// Returns the gradients of what is trained, of those of all weights: dA = scale * B^T dW, dB = scale * dW A^T.
  reference::Tensors of_trained(reference::Tensors gradients) const;

 private:
  double scale_;
  const ParameterTable& table_;
  reference::Tensors factors_;  // A and B, by name
};

}  // namespace ringtrain
