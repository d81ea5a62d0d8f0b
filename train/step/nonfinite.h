// What a run says of a step that made no update, and with what it ends if loss or gradient are no numbers: the numbers,
// and advice that fits what is known. A learning rate that was never used is not at fault, and weights that are no
// numbers cannot be trained on.
#pragma once

#include <cstdint>
#include <string>

#include "train/step/step_result.h"

namespace ringtrain {

class RankState;  // train/engine/rank_state.h
struct Run;       // train/run/run.h

/// Returns the warning of a step that is skipped: an empty one, or one whose numbers are not finite. sequences: of the
/// step. skipped: steps so far.
std::string skipped_text(const StepResult& result, std::int64_t sequences, std::int64_t skipped);

/// Collective, after a step whose numbers are not finite: all ranks look for weights that are not, either. Returns the
/// sentence that the run ends with. updates: that the weights have had, those before a resume among them. saved: what
/// the run has saved, as a clause.
std::string nonfinite_sentence(const Run& run, RankState& state, const StepResult& result, std::int64_t updates,
                               const std::string& saved);

}  // namespace ringtrain
