// Explains why a config does not fit its hardware, and what would help. Pure, except for reading configs/hardware.
#pragma once

#include <string>
#include <vector>

#include "extras/planner/plan.h"

namespace ringtrain {

/// Returns the reasons and the remedies, one sentence each. config: the config that does not fit, preferably in the
/// form that needs the least memory. Its memory is planned for other meshes, lengths, and hardware.
std::vector<std::string> advice(const Config& config, const Hardware& hardware);

}  // namespace ringtrain
