#include "train/step/step_audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "framework/counted.h"
#include "layers/audit/attention_audit.h"
#include "parallel/collectives.h"
#include "parallel/shared_error.h"
#include "train/engine/rank_state.h"
#include "train/run/run_steps.h"
#include "train/step/ring_report.h"

namespace ringtrain {

namespace {

std::string described(const RunSteps& run, const RankState& state, std::int64_t step, const AuditDifference& found) {
  const AuditLocation& location = found.at;
  return fmt::format(
      "layer.{}.{} differs at head {}, sequence {}, position {}, element {}, computed by rank {} on {}{}: the run has "
      "{:.9g}, computed again in double it is {:.9g}; they are {:.3g} apart, and the bound is {:.3g}",
      location.layer, name_of(found.tensor), location.head,
      run.sequence_in_step(step, state.mesh.data_index(state.rank), location.micro) + location.sequence,
      location.position, found.element, state.rank, state.allocator.device().name(),
      found.recomputed ? ", in the forward that backward recomputes" : "", found.run, found.exact,
      std::abs(found.run - found.exact), found.bound);
}

}  // namespace

bool is_audited(const RunSteps& run, std::int64_t step) {
  const std::int64_t interval = run.config.training.audit.interval;
  return interval > 0 && step % interval == 0;
}

void begin_audit(const RunSteps& run, RankState& state, std::int64_t step) {
  const TrainingConfig& training = run.config.training;
  state.model->audit().begin_step(training.seed, step, state.rank, run.micro_batches(step), training.micro_batch_size,
                                  state.batch.T);
}

StepAudit end_audit(const RunSteps& run, RankState& state, std::int64_t step) {
  const auto [rows, differences, error, found] = state.model->audit().take_report();  // every member of a report
  std::vector<double> numbers{static_cast<double>(rows), static_cast<double>(differences)};
  numbers.insert(numbers.end(), error.begin(), error.end());
  const std::vector<double> all = all_gather(*state.world, numbers, {"audit of attention"});
  StepAudit audit;
  audit.error.resize(audited_tensors);
  for (std::size_t at = 0; at < all.size(); at += numbers.size()) {
    audit.rows += static_cast<std::int64_t>(all[at]);
    audit.differences += static_cast<std::int64_t>(all[at + 1]);
    for (std::size_t i = 0; i < audit.error.size(); ++i) audit.error[i] = std::max(audit.error[i], all[at + 2 + i]);
  }
  if (audit.differences == 0) return audit;
  const auto first = shared_error(
      *state.world, found ? std::optional(Error(ExitCode::numeric, described(run, state, step, *found))) : std::nullopt,
      {"what an audit found"});
  audit.ends_run = run.config.training.audit.on_failure == OnFailure::stop;
  audit.sentence = fmt::format(
      "step {}: the audit of attention found {} of {} wrong: {}{}; repeat the step with check, and test the device "
      "with gpu-check",
      step, audit.differences, counted(audit.rows, "row"), first ? first->what() : "",
      audit.ends_run ? fmt::format("; weights and moments are still those of step {}", step - 1) : "");
  return audit;
}

nlohmann::ordered_json to_json(const StepAudit& audit) {
  nlohmann::ordered_json json{{"rows", audit.rows}, {"departures", audit.differences}};
  for (int i = 0; i < audited_tensors; ++i) {
    json["error"][name_of(static_cast<AuditedTensor>(i))] = six_digits(audit.error[static_cast<std::size_t>(i)]);
  }
  if (!audit.sentence.empty()) json["first"] = audit.sentence;
  return json;
}

}  // namespace ringtrain
