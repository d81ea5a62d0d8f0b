// A plan as text for users, and as plan.json; and why a config does not fit its hardware, and what would help.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "extras/planner/plan.h"

namespace ringtrain {

/// Returns the plan as lines of text.
std::string plan_report(const Plan& plan);
/// Returns the plan as JSON (docs/planning.md has its fields).
nlohmann::ordered_json plan_json(const Plan& plan);

/// Returns what is needed and what can be used, as a part of a sentence that begins with "needs".
std::string memory_text(const MemoryNeed& need, const Hardware& hardware);
/// Returns the reasons and the remedies, one sentence each. config: the config that does not fit, preferably in the
/// form that needs the least memory. Its memory is planned for other meshes, lengths, and hardware, which are read from
/// configs/hardware.
std::vector<std::string> advice(const Config& config, const Hardware& hardware);

}  // namespace ringtrain
