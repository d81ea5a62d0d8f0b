// Checks the keys of model.rope_scaling: each type needs some of them and ignores the others.
#pragma once

#include "framework/config/config_problems.h"

namespace ringtrain {

struct Config;

/// Resolves model.rope_scaling.factor, and adds a problem for every key that the type needs but does not have, or
/// cannot use. Does not touch keys that already have a problem. Requires a resolved model.head_dim (0 if a
/// problem of the keys above it was reported).
void check_rope_scaling(Config& config, ConfigProblems& problems);

}  // namespace ringtrain
