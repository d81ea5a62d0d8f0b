// The rule of this floor for a config, as its reader takes it (framework/config/read_config.h).
#pragma once

#include "framework/config/config.h"
#include "framework/config/config_problems.h"

namespace ringtrain {

/// Adds a problem for every key that the config's architecture cannot use, and for what names no parameter of its
/// model. Keys that already have a problem are left alone.
void check_model(const Config& config, ConfigProblems& problems);

}  // namespace ringtrain
