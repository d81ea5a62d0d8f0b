#include "framework/checks/gradient_check.h"

#include <algorithm>
#include <cmath>

#include "framework/error.h"

namespace ringtrain {

GradientCheck check_gradient(const std::function<double()>& loss, const TensorView& x, const ConstTensorView& gradient,
                             const GradientCheckOptions& options) {
  if (x.dtype != DType::float64 || gradient.dtype != DType::float64 || !x.device.is_cpu() ||
      !gradient.device.is_cpu() || x.shape != gradient.shape) {
    fail(ExitCode::usage,
         "check_gradient takes two float64 tensors of one shape on the host, but x is {} {} on {}, and its gradient is "
         "{} {} on {}",
         name_of(x.dtype), x.shape.to_string(), x.device.name(), name_of(gradient.dtype), gradient.shape.to_string(),
         gradient.device.name());
  }
  const std::int64_t n = x.numel();
  const std::int64_t count = options.most > 0 ? std::min(options.most, n) : n;
  GradientCheck result;
  double largest = 1, furthest = -1;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t element = i * (n / count) + i * (n % count) / count;
    double& value = x.as<double>()[element];
    const double before = value, step = options.step * std::max(1.0, std::abs(before));
    if (options.varies) value = before + step;
    const double above = value, loss_above = loss();
    if (options.varies) value = before - step;
    const double below = value, loss_below = loss();
    value = before;
    ++result.looked_at;
    if (!options.varies) continue;
    const double difference = (loss_above - loss_below) / (above - below);
    const double found = gradient.as<double>()[element];
    double apart = std::abs(found - difference);
    if (std::isnan(apart)) apart = INFINITY;
    largest = std::max(largest, std::abs(difference));
    if (apart <= furthest) continue;
    furthest = apart;
    result.element = element;
    result.gradient = found;
    result.difference = difference;
  }
  result.error = std::isinf(furthest) ? NAN : std::max(0.0, furthest) / largest;
  return result;
}

}  // namespace ringtrain
