// A norm of a block, of queries and keys, or before the head: RMSNorm, or LayerNorm, which has a bias. It keeps nothing
// for backward, which takes the statistics; forward recomputes them if needed. A tensor that does not fit is an
// Error(usage) that names the caller's line.
#pragma once

#include "framework/const_tensor_view.h"
#include "framework/stream.h"
#include "layers/model_parameters.h"
#include "layers/model_spec.h"

namespace ringtrain {

class Norm {
 public:
  /// parameters must outlive it.
  Norm(ParameterStore& parameters, const NormIds& ids, const NormSpec& spec)
      : parameters_(&parameters), ids_(ids), spec_(spec) {}

  /// Returns how many numbers a token has in `statistics`: rstd, and with LayerNorm the mean.
  static std::int64_t statistics_per_token(const NormSpec& spec) { return spec.kind == NormKind::layer_norm ? 2 : 1; }
  /// Returns whether the model has this norm.
  bool exists() const { return ids_.weight >= 0; }

  /// y[n, C] = norm(x[n, C]); fills statistics (at least statistics_per_token * n elements): rstd, then the mean.
  void forward(Stream& stream, const TensorView& y, const TensorView& statistics, const ConstTensorView& x,
               const CallerLine& line = CallerLine::current()) const;
  /// dx[n, C] = the gradient, or += if accumulate; adds to the weights' gradients. statistics: forward's, for this x.
  void backward(Stream& stream, const TensorView& dx, const ConstTensorView& dy, const ConstTensorView& x,
                const ConstTensorView& statistics, bool accumulate,
                const CallerLine& line = CallerLine::current()) const;

 private:
  double offset() const { return spec_.unit_offset ? 1.0 : 0.0; }

  ParameterStore* parameters_;
  NormIds ids_;
  NormSpec spec_;
};

}  // namespace ringtrain
