// The update of a step in plain double: the learning rate, the clip by the global norm, and AdamW (Loshchilov and
// Hutter, "Decoupled Weight Decay Regularization", 2019, algorithm 2).
#pragma once

#include <cstdint>

#include "reference/operations.h"

namespace ringtrain {
struct Config;
struct OptimizerConfig;
}  // namespace ringtrain

namespace ringtrain::reference {

/// Returns the learning rate of a step (from 1): a linear warmup, then constant, cosine (Loshchilov and Hutter, "SGDR",
/// 2017, eq. 5), linear, or constant with a linear end (Hu et al., "MiniCPM", 2024, section 4.2).
double learning_rate(const Config& config, std::int64_t step);

/// A parameter with its moments.
struct Moments {
  Vector weights, first, second;
};
/// Updates a parameter from a step's gradient (steps count from 1), each number of which is first multiplied by `clip`.
/// decays: whether weights shrink as well; those of norms and biases do not.
void adamw(Moments& p, const Vector& gradient, const OptimizerConfig& config, double rate, double clip,
           std::int64_t step, bool decays);

}  // namespace ringtrain::reference
