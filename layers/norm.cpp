#include "layers/norm.h"

#include "kernels/norm.h"

namespace ringtrain {

void Norm::forward(Stream& stream, const TensorView& y, const TensorView& statistics, const ConstTensorView& x,
                   const CallerLine& line) const {
  const std::int64_t n = x.dim(0);
  const bool layer = spec_.kind == NormKind::layer_norm;
  const TensorView mean = layer ? statistics.flat(n, 2 * n, line) : TensorView{};
  const TensorView b = layer ? parameters_->weight(ids_.bias) : TensorView{};
  norm_forward(stream, y, mean, statistics.flat(0, n, line), x, parameters_->weight(ids_.weight), b, spec_.eps,
               offset(), line);
}

void Norm::backward(Stream& stream, const TensorView& dx, const ConstTensorView& dy, const ConstTensorView& x,
                    const ConstTensorView& statistics, bool accumulate, const CallerLine& line) const {
  const std::int64_t n = x.dim(0);
  const bool layer = spec_.kind == NormKind::layer_norm;
  const ConstTensorView mean = layer ? statistics.flat(n, 2 * n, line) : ConstTensorView{};
  const auto gradient = [&](int id) {
    return id >= 0 && parameters_->trains(id) ? parameters_->gradient_to_add_to(id) : TensorView{};
  };
  norm_backward(stream, dx, gradient(ids_.weight), gradient(ids_.bias), dy, x, parameters_->weight(ids_.weight), mean,
                statistics.flat(0, n, line), accumulate, offset(), line);
}

}  // namespace ringtrain
