// AdamW (Loshchilov and Hutter, 2019, Algorithm 2, decoupled decay) in one pass over flat slices.
#pragma once

#include <cstdint>
#include <span>

#include "framework/const_tensor_view.h"
#include "framework/stream.h"
#include "framework/tensor.h"

namespace ringtrain {

struct AdamW {
  double lr, beta1, beta2, eps;
  std::int64_t step;       // counts from 1; for bias correction
  double gradient_scale;   // the clip factor, by which gradients are multiplied first
  std::uint64_t seed = 0;  // of the rounding of moments in bfloat16
};

/// Elements of one parameter: w, m, v, g are [n] of one dtype, float32 or float64. With float32, the m and v of all
/// slices of a call may be bfloat16, and the g of all may be. rounded: empty, or [n], the weights in bfloat16 with
/// which the model computes.
struct AdamWSlice {
  TensorView w, m, v;
  ConstTensorView g;
  TensorView rounded;
  double weight_decay = 0;
  std::uint64_t first_element = 0;  // the parameter's stream << 40 | element: rounds moments in bfloat16, at random
};

/// For each slice: m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; w -= lr (m^ / (sqrt(v^) + eps) + decay w); rounded =
/// w. The update takes m and v before they are rounded.
void adamw_update(Stream& stream, std::span<const AdamWSlice> slices, const AdamW& hyper);

}  // namespace ringtrain
