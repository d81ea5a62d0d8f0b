// Rotary position embedding (Su et al., RoFormer, 2021, eq. 34), in the half-split form of Llama checkpoints: element i
// of a head is paired with element i + D/2. Positions are those of the original document, never local indices. Pair i
// rotates by the angle position * theta^(-2i/D), which a scaling changes, as in Hugging Face:
//   linear    all angles / factor (Chen et al., "Extending Context Window ...", 2023, section 2.3)
//   ntk       theta * factor^(D/(D-2)) for theta, for any length
//   yarn      fast pairs unchanged, slow ones / factor, a ramp between (Peng et al., 2023, section 3.2 to 3.4)
//   llama3    the same with a ramp over the wavelength (Grattafiori et al., "The Llama 3 Herd of Models", 2024)
//   longrope  each pair has its own divisor, from a set for short or for long sequences (Ding et al., 2024)
// An argument that does not fit is an Error(usage) that names the caller's line. No communication.
#pragma once

#include <cstdint>
#include <vector>

#include "framework/config/rope_scaling.h"
#include "framework/const_tensor_view.h"
#include "framework/stream.h"
#include "framework/tensor.h"

namespace ringtrain {

struct RopeFrequencies {
  std::vector<double> inverse;  // [D / 2], radians per position
  double magnitude = 1.0;       // of cos and sin (attention_factor; yarn and longrope)
};

/// Returns the frequencies of a head of D elements (D even), for a resolved scaling. sequence_length: that of the whole
/// sequences to which they apply; longrope uses its long set if it exceeds the trained length, and no other type uses
/// it.
RopeFrequencies rope_frequencies(std::int64_t D, double theta, const RopeScalingConfig& scaling,
                                 std::int64_t sequence_length = 0, const CallerLine& line = CallerLine::current());

/// table[T, D] (the accumulator of the dtype of what it rotates) = cos of the D/2 angles, then sin, for positions[T]
/// (int32); angles are computed in double.
void rope_table(Stream& stream, const TensorView& table, const ConstTensorView& positions,
                const RopeFrequencies& frequencies, const CallerLine& line = CallerLine::current());

/// Rotates x[T, H, D] in place.
void rope_forward(Stream& stream, const TensorView& x, const ConstTensorView& table,
                  const CallerLine& line = CallerLine::current());
/// dx[T, H, D] = gradient[T, H, D] rotated back (the transpose of forward). gradient has dx's accumulator; if that is
/// the same dtype, it may be the same memory.
void rope_backward(Stream& stream, const TensorView& dx, const ConstTensorView& gradient, const ConstTensorView& table,
                   const CallerLine& line = CallerLine::current());

}  // namespace ringtrain
