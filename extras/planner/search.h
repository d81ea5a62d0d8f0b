// Chooses the mesh, layout, recompute policy, offload and host share, sharding, and micro-batch with which to run a
// config on a number of devices: plans all combinations, and ranks those that fit by tokens per second. The model, the
// length, and the batch do not change. Pure.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "extras/planner/plan.h"
#include "train/checkpoint/checkpoint_folder.h"

namespace ringtrain {

/// One way to run the config; it has no times if it does not fit.
struct Candidate : StepPlan {
  Config config;
};
/// All ways: the choice, others that fit (fastest first), and the remaining ones (least memory first).
using Candidates = std::vector<Candidate>;

/// Predictions that differ by less than this are ties.
inline constexpr double tie = 0.02;

/// Returns all candidates on `devices` ranks. Among ties with the fastest, the choice prefers zigzag to striped to
/// contiguous, and then the least memory of a device and a node. Leaves out those that cannot be simulated, and logs
/// how many and why. Throws Error(usage) if no mesh divides the batch, or if none of those that fit can be simulated.
Candidates search_plans(const PlanRequest& request, std::int64_t devices, const Log& log = {});

/// Returns the choice as text, and for each setting the fastest candidate with another value of it.
std::string search_report(const Candidates& candidates);
/// Returns all candidates as JSON, best first.
nlohmann::ordered_json search_json(const Candidates& candidates);
/// Returns the flags that give a config the choices of another: " --set mesh.data=2 --set ..."; "" if it has them.
std::string set_flags(const Config& config, const Config& chosen);

}  // namespace ringtrain
