// Compares a handwritten gradient with finite differences of the loss, to test custom layers.
#pragma once

#include <cstdint>
#include <functional>

#include "framework/const_tensor_view.h"
#include "framework/tensor.h"

namespace ringtrain {

struct GradientCheckOptions {
  double step = 1e-5;       // an element x becomes x + step and x - step, times max(1, |x|)
  std::int64_t most = 256;  // elements to check, spread evenly over the tensor; 0: all
  bool varies = true;       // false: x is not changed; for ranks that only take part in the loss of another rank's x
};

/// The largest difference between the gradient and the finite differences.
struct GradientCheck {
  double error = 0;  // the largest |gradient - difference|, over max(1, the largest |difference|); NaN counts most
  std::int64_t element = -1;  // its index in the flattened tensor; -1: none was checked
  double gradient = 0, difference = 0;
  std::int64_t looked_at = 0;
};

/// Compares gradient with the central differences (f(x + h) - f(x - h)) / 2h of loss(), which depends on x. x,
/// gradient: float64 of one shape, on the host. Restores x afterwards. Calls loss() twice per element; if it is
/// collective, all ranks call this function with tensors of one size, and one of them varies its x. Errors of 1e-6 are
/// usual; a wrong gradient has 1e-3 and more. Throws Error(usage) for other tensors.
GradientCheck check_gradient(const std::function<double()>& loss, const TensorView& x, const ConstTensorView& gradient,
                             const GradientCheckOptions& options = {});

}  // namespace ringtrain
