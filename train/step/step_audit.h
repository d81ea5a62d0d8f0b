// What the audit of a step (layers/audit/attention_audit.h) comes to over all ranks.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "layers/audit/attention_audit.h"
#include "train/engine/rank_state.h"
#include "train/run/run.h"

namespace ringtrain {

struct StepAudit {
  std::int64_t rows = 0, departures = 0;        // of all ranks
  std::array<double, audited_tensors> error{};  // the largest, as a part of its bound, by tensor
  std::string sentence;                         // what departs; "": nothing
  bool ends_run = false;
};

/// Collective. Returns the same on all ranks. Of several departures the lowest rank's first is told.
StepAudit audit_over_ranks(const Run& run, const RankState& state, std::int64_t step, const AuditReport& own);

/// Returns the object of a metrics line (docs/metrics.md).
nlohmann::ordered_json to_json(const StepAudit& audit);

}  // namespace ringtrain
