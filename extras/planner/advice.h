// Why a config does not fit its hardware, and what would help. Pure, but for reading
// configs/hardware.
#pragma once

#include <string>
#include <vector>

#include "extras/planner/plan.h"

namespace ringtrain {

/// Returns the reasons and the ways out, a sentence each. config: what does not fit, best the way to run it that needs
/// the least. Its bytes are planned, on other meshes, lengths and hardware.
std::vector<std::string> advice(const Config& config, const Hardware& hardware);

}  // namespace ringtrain
