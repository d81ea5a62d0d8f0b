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
  std::int64_t step;      // counts from 1; for the bias corrections
  double gradient_scale;  // the clip factor: gradients are multiplied by it first
};

/// Elements of one parameter: w, m, v, g are [n] of one dtype, float32 or float64. rounded: empty, or [n], the weights
/// that the model computes with, in bfloat16.
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
