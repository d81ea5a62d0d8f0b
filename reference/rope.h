// Rotary positions (Su et al., "RoFormer", 2021, eq. 34): element i of a head turns with element i + D/2 by the angle
// position * frequency i. Frequencies beyond the trained length are those of the papers, as in their published code;
// comments in the source name each.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "framework/config/rope_scaling.h"

namespace ringtrain::reference {

struct Rotation {
  std::vector<double> frequencies;  // [D / 2], radians per position
  double magnitude = 1;             // of the rotated pair
};

/// length: of the sequence to rotate; longrope uses other frequencies beyond the trained length.
Rotation rotation(std::int64_t D, double theta, const RopeScalingConfig& scaling, std::int64_t length);

/// Rotates every head of x[T, heads, D] by its token's position; back: by the negative angle, which is the transpose.
void rotate(std::vector<double>& x, std::int64_t heads, std::span<const std::int32_t> positions,
            const Rotation& rotation, bool back = false);

}  // namespace ringtrain::reference
