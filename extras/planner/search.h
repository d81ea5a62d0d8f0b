// Which mesh, layout, recompute policy, offload, sharding, batch and micro-batch to run a config with on so many
// devices: all of them are planned, and ranked by their tokens a second among those that fit. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "extras/planner/plan.h"

namespace ringtrain {

/// One way to run the config.
struct Candidate {
  MeshConfig mesh;
  Recompute recompute = Recompute::none;
  Offload offload = Offload::none;
  Shard shard = Shard::optimizer;
  std::int64_t global_batch_size = 1, micro_batch_size = 1;
  MemoryNeed need = {};
  bool fits = false;
  double step_seconds = 0, tokens_per_second = 0, mfu = 0;
  StepTimes times = {};
};

struct SearchResult {
  std::vector<Candidate> candidates;  // the choice, others that fit, fastest first; then the rest, least memory first
  std::vector<std::string> why;       // the best one beside the best that differs in one choice: a sentence each
};

/// Predictions that differ by less are ties.
inline constexpr double tie = 0.02;

/// Returns all candidates on `devices` ranks, in rings of at most 4,096, with these batches; none: the config's, and
/// twice, four and eight times that, up to a sequence a device. Length and model stay. Of ties with the fastest the
/// choice is that whose batch is nearest to the config's, then zigzag before striped before contiguous, then that of
/// least memory. Throws Error(usage) if no mesh divides any batch.
SearchResult search_plans(const PlanRequest& request, std::int64_t devices, std::vector<std::int64_t> batches = {});

/// Returns the result as text; of the candidates the first `shown`.
std::string search_report(const SearchResult& result, std::size_t shown = 10);
/// Returns the config with a candidate's choices.
Config config_of(const Config& config, const Candidate& candidate);
/// Returns the flags that give a config another's choices: " --set mesh.data=2 --set ..."; "" if it has them.
std::string set_flags(const Config& config, const Config& chosen);

}  // namespace ringtrain
