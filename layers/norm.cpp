#include "layers/norm.h"

#include "kernels/norm.h"

namespace ringtrain {

void Norm::forward(Stream& stream, const TensorView& y, const TensorView& statistics, const ConstTensorView& x,
                   const CallerLine& line) const {
  const std::int64_t n = x.dim(0);
  const TensorView w = parameters_->weight(ids_.weight), rstd = statistics.flat(0, n, line);
  if (spec_.kind == NormKind::layer_norm) {
    const TensorView mean = statistics.flat(n, 2 * n, line);
    layernorm_forward(stream, y, mean, rstd, x, w, parameters_->weight(ids_.bias), spec_.eps, line);
  } else {
    rmsnorm_forward(stream, y, rstd, x, w, spec_.eps, offset(), line);
  }
}

void Norm::backward(Stream& stream, const TensorView& dx, const ConstTensorView& dy, const ConstTensorView& x,
                    const ConstTensorView& statistics, bool accumulate, const CallerLine& line) const {
  const std::int64_t n = x.dim(0);
  const auto gradient = [&](int id) {
    return parameters_->trains(id) ? parameters_->gradient_to_add_to(id) : TensorView{};
  };
  const TensorView w = parameters_->weight(ids_.weight), dw = gradient(ids_.weight);
  const ConstTensorView rstd = statistics.flat(0, n, line);
  if (spec_.kind == NormKind::layer_norm) {
    const ConstTensorView mean = statistics.flat(n, 2 * n, line);
    layernorm_backward(stream, dx, dw, gradient(ids_.bias), dy, x, w, mean, rstd, accumulate, line);
  } else {
    rmsnorm_backward(stream, dx, dw, dy, x, w, rstd, accumulate, offset(), line);
  }
}

}  // namespace ringtrain
