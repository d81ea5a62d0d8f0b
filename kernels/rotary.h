// Rotary position embedding (Su et al., RoFormer, 2021, eq. 34), in the half-split form of Llama checkpoints: element i
// of a head is paired with element i + D/2. Scaling as in Hugging Face: linear, ntk (fixed factor) and yarn (Peng et
// al., 2023, section 3.4). Positions are those of the original document, never local indices.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/stream.h"
#include "framework/tensor.h"

namespace ringtrain {

enum class RotaryScalingType { none, linear, ntk, yarn };

struct RotaryScaling {
  RotaryScalingType type = RotaryScalingType::none;
  double factor = 1.0;                                // trained length times factor is the new length
  std::int64_t original_max_position_embeddings = 0;  // yarn: the length the frequencies were trained at
  double beta_fast = 32.0, beta_slow = 1.0;           // yarn: rotations that bound the ramp
};

struct RotaryFrequencies {
  std::vector<double> inverse;  // [D / 2], radians a position
  double magnitude = 1.0;       // of cos and sin; yarn: 0.1 ln(factor) + 1
};

/// Return the frequencies of a head of D elements (D even).
RotaryFrequencies rotary_frequencies(std::int64_t D, double theta, const RotaryScaling& scaling);

/// table[T, D] (the accumulator of the dtype of what it rotates) = cos of the D/2 angles, then sin, of positions[T]
/// (int32); angles are computed in double.
void rotary_table(Stream& stream, const TensorView& table, const TensorView& positions,
                  const RotaryFrequencies& frequencies);

/// Rotates x[T, H, D] in place.
void rotary_forward(Stream& stream, const TensorView& x, const TensorView& table);
/// dx[T, H, D] = gradient[T, H, D] rotated back (the transpose of forward). gradient is of dx's accumulator; where that
/// is the same dtype, it may be the same memory.
void rotary_backward(Stream& stream, const TensorView& dx, const TensorView& gradient, const TensorView& table);

}  // namespace ringtrain
