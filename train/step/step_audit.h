// The result of a step's audit (layers/audit/attention_audit.h) over all ranks.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace ringtrain {

class RankState;  // train/engine/rank_state.h
struct RunSteps;  // train/run/run_steps.h

struct StepAudit {
  std::int64_t rows = 0, differences = 0;  // of all ranks
  std::vector<double> error;               // the largest, as a fraction of its bound, by AuditedTensor
  std::string sentence;                    // what differs; "": nothing
  bool ends_run = false;
};

/// Returns whether a step is audited, unless it is empty.
bool is_audited(const RunSteps& run, std::int64_t step);
/// Begins the audit of a step, whose batches are loaded.
void begin_audit(const RunSteps& run, RankState& state, std::int64_t step);
/// Collective. Ends it. Returns the same on all ranks. If several rows differ, it reports the lowest rank's first one.
StepAudit end_audit(const RunSteps& run, RankState& state, std::int64_t step);

/// Returns the object of a metrics line (docs/metrics.md).
nlohmann::ordered_json to_json(const StepAudit& audit);

}  // namespace ringtrain
