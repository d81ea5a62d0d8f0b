// Messages about a step without an update, and the final message of a run whose loss or gradient is NaN or infinite:
// the numbers, and advice that fits what is known. A learning rate that was never used is not to blame, and training
// cannot continue with NaN or infinite weights.
#pragma once

#include <cstdint>
#include <string>

#include "train/step/step_result.h"

namespace ringtrain {

class RankState;  // train/engine/rank_state.h
struct Run;       // train/run/run.h

/// Returns the warning about a skipped step: an empty one, or one whose numbers are not finite. sequences: of the step.
/// skipped: steps so far.
std::string skipped_text(const StepResult& result, std::int64_t sequences, std::int64_t skipped);

/// Collective, after a step whose numbers are not finite: all ranks check whether weights are not finite either.
/// Returns the run's final message. updates: of the weights, including those before a resume. saved: what the run has
/// saved, as a clause.
std::string nonfinite_sentence(const Run& run, RankState& state, const StepResult& result, std::int64_t updates,
                               const std::string& saved);

}  // namespace ringtrain
