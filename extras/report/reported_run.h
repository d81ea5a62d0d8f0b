// A run that a page is asked for: its folder, and what is known of it beside its metrics.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "framework/allocator.h"
#include "framework/config/config.h"

namespace ringtrain {

/// What `plan` foresaw; 0: it did not say.
struct PlannedTimes {
  std::string hardware;
  double step_seconds = 0, tokens_per_second = 0, mfu = 0;
};

/// A run's folder, and what is known of it beside its metrics.
struct ReportedRun {
  std::string folder;
  std::optional<Config> config = {};    // of its config.yaml
  std::int64_t parameters = 0;          // 0: not known
  std::vector<MemoryUse> planned = {};  // by rank, or nothing
  std::optional<PlannedTimes> plan = {};
  std::string evaluation_path = {};  // of a file of `evaluate --output`; "": there is none
  nlohmann::json evaluation = {};    // what it holds
};

}  // namespace ringtrain
