// tanh in float32, for softcaps of attention's scores and of logits.
#pragma once

namespace ringtrain::cuda {

/// Returns tanh(x) to a few units of rounding; NaN remains NaN. Near 0 it uses the continued fraction (Lambert, 1761),
/// because the form with exponentials would cancel.
__device__ __forceinline__ float tanh_of(float x) {
  constexpr float two_log2_e = 2.8853900817779268F;
  const float size = fabsf(x), square = x * x;
  const float above = fmaf(square + 105.0F, square, 945.0F), below = fmaf(fmaf(15.0F, square, 420.0F), square, 945.0F);
  const float large = 1.0F - __fdividef(2.0F, exp2f(size * two_log2_e) + 1.0F);
  return size < 0.5F ? x * __fdividef(above, below) : copysignf(large, x);
}

}  // namespace ringtrain::cuda
