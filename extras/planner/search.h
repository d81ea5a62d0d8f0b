// Which mesh, layout, recompute policy, offload, sharding and micro-batch to run a config with on so many devices: all
// of them are planned, and ranked by their tokens a second among those that fit. What is trained stays: the model, the
// length, and the batch. Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "extras/planner/plan.h"

namespace ringtrain {

/// One way to run the config; without times if it does not fit.
struct Candidate : StepPlan {
  Config config;
};
/// All ways: the choice, others that fit, fastest first; then the rest, least memory first.
using Candidates = std::vector<Candidate>;

/// Predictions that differ by less are ties.
inline constexpr double tie = 0.02;

/// Returns all candidates on `devices` ranks. Of ties with the fastest the choice has zigzag before striped before
/// contiguous, then the least memory of a device and a node. Throws Error(usage) if no mesh divides the batch.
Candidates search_plans(const PlanRequest& request, std::int64_t devices);

/// Returns the choice as text, with the fastest candidate that chooses otherwise for each thing that there is to
/// choose.
std::string search_report(const Candidates& candidates);
/// Returns all of them as JSON, best first.
nlohmann::ordered_json search_json(const Candidates& candidates);
/// Returns the flags that give a config another's choices: " --set mesh.data=2 --set ..."; "" if it has them.
std::string set_flags(const Config& config, const Config& chosen);

}  // namespace ringtrain
