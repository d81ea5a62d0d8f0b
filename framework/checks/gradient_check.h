// Holds a gradient that somebody wrote by hand against finite differences of the loss: the test of a layer of one's
// own.
#pragma once

#include <cstdint>
#include <functional>

#include "framework/const_tensor_view.h"
#include "framework/tensor.h"

namespace ringtrain {

struct GradientCheckOptions {
  double step = 1e-5;       // an element x becomes x + step and x - step, times max(1, |x|)
  std::int64_t most = 256;  // elements that are looked at, spread evenly over the tensor; 0: all
  bool varies = true;       // false: x stays as it is, for ranks that only take part in the loss of another one's x
};

/// Where gradient and differences are furthest apart.
struct GradientCheck {
  double error = 0;  // the largest |gradient - difference|, over max(1, the largest |difference|); NaN counts most
  std::int64_t element = -1;  // its place in the flattened tensor; -1: none was looked at
  double gradient = 0, difference = 0;
  std::int64_t looked_at = 0;
};

/// Compares gradient with the central differences (f(x + h) - f(x - h)) / 2h of loss(), which depends on x. x,
/// gradient: float64 of one shape, on the host. x is afterwards as it was. loss() is called twice an element; where it
/// is collective, all ranks call this with tensors of one size, and one of them varies. Errors of 1e-6 are usual, a
/// wrong gradient has 1e-3 and more. Throws Error(usage) for tensors of other kinds.
GradientCheck check_gradient(const std::function<double()>& loss, const TensorView& x, const ConstTensorView& gradient,
                             const GradientCheckOptions& options = {});

}  // namespace ringtrain
