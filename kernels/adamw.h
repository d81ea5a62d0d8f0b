// AdamW (Loshchilov and Hutter, 2019, Algorithm 2, decoupled decay) in one pass over flat slices.
#pragma once

#include <cstdint>

#include "framework/stream.h"
#include "framework/tensor.h"

namespace ringtrain {

struct AdamW {
  double lr, beta1, beta2, eps, weight_decay;
  std::int64_t step;      // counts from 1; for the bias corrections
  double gradient_scale;  // the clip factor: gradients are multiplied by it first
};

/// m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; w -= lr (m^ / (sqrt(v^) + eps) + decay w). All [n], one dtype.
void adamw_update(Stream& stream, const TensorView& w, const TensorView& m, const TensorView& v, const TensorView& g,
                  const AdamW& hyper);

}  // namespace ringtrain
