// A plan for people, and as plan.json.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "extras/planner/plan.h"
#include "extras/planner/search.h"

namespace ringtrain {

/// Returns the plan as lines of text.
std::string plan_report(const Plan& plan);
/// Returns the plan as JSON (docs/planning.md has its fields).
nlohmann::ordered_json plan_json(const Plan& plan);
/// Returns a search's candidates as a JSON list, best first.
nlohmann::ordered_json search_json(const SearchResult& result);

}  // namespace ringtrain
