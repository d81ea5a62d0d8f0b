// The model's input: a row of the token table, plus, where positions are learned, a row of the position table. Keeps
// nothing.
#pragma once

#include "framework/const_tensor_view.h"
#include "layers/device_batch.h"
#include "layers/model_parameters.h"

namespace ringtrain {

class Embedding {
 public:
  Embedding(ParameterStore& parameters, const ModelIds& ids)
      : parameters_(&parameters), tokens_(ids.token_embedding), positions_(ids.position_embedding) {}

  /// x[n, C] = the residual stream before the first block.
  void forward(Stream& stream, const DeviceBatch& batch, const TensorView& x) const;
  /// Adds dx[n, C] to the tables' gradients.
  void backward(Stream& stream, const DeviceBatch& batch, const ConstTensorView& dx) const;

 private:
  static constexpr int bucket = 0;
  ParameterStore* parameters_;
  int tokens_, positions_;
};

}  // namespace ringtrain
