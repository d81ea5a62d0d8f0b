// Which mesh, layout, recompute policy, offload and micro-batch to run a config with on so many devices: all of them
// are planned, and ranked by their step's time among those that fit. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/planning/plan.h"

namespace ringtrain {

/// One way to run the config.
struct Candidate {
  MeshConfig mesh;
  Recompute recompute = Recompute::none;
  Offload offload = Offload::none;
  std::int64_t micro_batch_size = 1;
  double memory_needed = 0;  // bytes, as of memory_needed()
  bool fits = false;
  double step_seconds = 0, tokens_per_second = 0, mfu = 0;
  StepTimes times = {};
};

/// What would make the best candidate faster.
struct Lever {
  std::string what;
  double gain = 0;  // the share of the step that it saves
};

struct SearchResult {
  std::vector<Candidate> candidates;  // those that fit, best first; then the others, least memory first
  std::vector<std::string> why;       // the best one beside the best that differs in one choice: a sentence each
  std::vector<Lever> levers;          // largest gain first
};

/// Returns all candidates on `devices` ranks, in rings of at most 4,096. The config's batch, length and model stay.
/// Throws Error(usage) if no mesh divides its batch.
SearchResult search_plans(const PlanRequest& request, std::int64_t devices);

/// Returns the result as text; of the candidates the first `shown`.
std::string search_report(const SearchResult& result, std::size_t shown = 10);
/// Returns the config with a candidate's choices.
Config config_of(const Config& config, const Candidate& candidate);

}  // namespace ringtrain
