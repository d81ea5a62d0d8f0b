#include "layers/norm.h"

#include "kernels/norm.h"

namespace ringtrain {

namespace {
template <class View>
View rstd_of(const View& statistics, std::int64_t n, const CallerLine& line) {
  return statistics.flat(0, n, line);
}
template <class View>
View mean_of(const View& statistics, std::int64_t n, const CallerLine& line) {
  return statistics.flat(n, 2 * n, line);
}
}  // namespace

void Norm::forward(Stream& stream, const TensorView& y, const TensorView& statistics, const ConstTensorView& x,
                   const CallerLine& line) const {
  const std::int64_t n = x.dim(0);
  const TensorView w = parameters_->weight(ids_.weight);
  if (spec_.kind == NormKind::layer_norm) {
    layernorm_forward(stream, y, mean_of(statistics, n, line), rstd_of(statistics, n, line), x, w,
                      parameters_->weight(ids_.bias), spec_.eps, line);
  } else {
    rmsnorm_forward(stream, y, rstd_of(statistics, n, line), x, w, spec_.eps, offset(), line);
  }
}

void Norm::backward(Stream& stream, const TensorView& dx, const ConstTensorView& dy, const ConstTensorView& x,
                    const ConstTensorView& statistics, bool accumulate, const CallerLine& line) const {
  const std::int64_t n = x.dim(0);
  const auto gradient = [&](int id) {
    return parameters_->trains(id) ? parameters_->gradient_to_add_to(id) : TensorView{};
  };
  const TensorView w = parameters_->weight(ids_.weight), dw = gradient(ids_.weight);
  if (spec_.kind == NormKind::layer_norm) {
    layernorm_backward(stream, dx, dw, gradient(ids_.bias), dy, x, w, mean_of(statistics, n, line),
                       rstd_of(statistics, n, line), accumulate, line);
  } else {
    rmsnorm_backward(stream, dx, dw, dy, x, w, rstd_of(statistics, n, line), accumulate, offset(), line);
  }
}

}  // namespace ringtrain
