#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "layers/model/step_work.h"
#include "train/run/step_report.h"
#include "train/step/ring_report.h"
#include "train/step/step_audit.h"

namespace ringtrain {

/// What all ranks know after a step. `tokens` and `seconds` are 0: only rank 0 fills them in, for its line of metrics.
struct StepResult : StepReport {
  LayerPairs pairs;                // over all sequences
  double held_tokens = 0;          // of the files, over all sequences: the step's other tokens fill up windows
  bool empty = false;              // no sequence has a target: nothing was computed
  std::int64_t updates = 0;        // of the run so far, with this step's, if it has one
  std::int64_t nonfinite = 0;      // steps in a row, up to this one, whose loss or norm is not finite
  int signal = 0;                  // SIGTERM or SIGINT, if any rank has seen one
  double unfinished_saves = 0;     // ranks that are still writing
  bool save_is_due = false;        // by checkpoint.every_minutes
  double ring_wait_seconds = 0;    // time that this rank spent waiting for ring messages
  std::optional<RingReport> ring;  // empty: a ring of one
  std::optional<StepAudit> audit;  // empty: the step was not audited
  std::string dumped;              // rank 0's message about the step's dump; "": no dump
};

}  // namespace ringtrain
