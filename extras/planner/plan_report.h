// A plan as text for users, and as plan.json.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "extras/planner/plan.h"

namespace ringtrain {

/// Returns the plan as lines of text.
std::string plan_report(const Plan& plan);
/// Returns the plan as JSON (docs/planning.md has its fields).
nlohmann::ordered_json plan_json(const Plan& plan);

}  // namespace ringtrain
