// The model's input: a row of the token table (times a factor, if the model has one), plus, with learned positions, a
// row of the position table. It keeps nothing for backward.
#pragma once

#include "layers/device_batch.h"
#include "layers/model_parameters.h"

namespace ringtrain {

class Embedding {
 public:
  Embedding(const ModelSpec& spec, ParameterStore& parameters, const ModelIds& ids);

  /// Fills x[n, C], the residual stream before the first block.
  void forward(Stream& stream, const DeviceBatch& batch, const TensorView& x) const;
  /// Adds dx[n, C] to the tables' gradients; the contents of dx are undefined afterwards.
  void backward(Stream& stream, const DeviceBatch& batch, const TensorView& dx) const;

 private:
  static constexpr int bucket = 0;
  ParameterStore* parameters_;
  int tokens_, positions_;
  double factor_;  // of a token's row
};

}  // namespace ringtrain
