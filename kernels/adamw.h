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
  std::int64_t step;      // counts from 1; for bias correction
  double gradient_scale;  // the clip factor, by which gradients are multiplied first
};

/// Elements of one parameter: w, m, v, g are [n] of one dtype, float32 or float64. rounded: empty, or [n], the weights
/// in bfloat16 with which the model computes.
struct AdamWSlice {
  TensorView w, m, v;
  ConstTensorView g;
  TensorView rounded;
  double weight_decay = 0;
};

/// For each slice: m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; w -= lr (m^ / (sqrt(v^) + eps) + decay w); rounded =
/// w.
void adamw_update(Stream& stream, std::span<const AdamWSlice> slices, const AdamW& hyper);

}  // namespace ringtrain
