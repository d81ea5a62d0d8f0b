// What must hold between the keys of model.rope_scaling: each type needs some of them, and the others have no effect.
#pragma once

#include "framework/config/config_problems.h"

namespace ringtrain {

struct Config;

/// Resolves model.rope_scaling.factor, and adds a problem for every key that the type needs and lacks, or cannot use.
/// Keys that already have a problem are left alone. Needs model.head_dim resolved.
void check_rope_scaling(Config& config, ConfigProblems& problems);

}  // namespace ringtrain
