// The batches of a step on one rank.
#pragma once

#include <vector>

#include "layers/model/step_work.h"
#include "train/step/step_result.h"

namespace ringtrain {

struct Corpus;    // data/corpus.h
class RankState;  // train/engine/rank_state.h
struct RunSteps;  // train/run/run_steps.h

/// Collective. Loads the micro-batches of step result.step into the state's and counts their tokens and pairs, without
/// those that fill up windows. masks: of the run's model. Returns the sum of all targets' weights: the step's one
/// denominator. Throws SharedError on all ranks if one cannot read its data.
double load_batches(const RunSteps& run, const Corpus& corpus, RankState& state, const std::vector<MaskCount>& masks,
                    StepResult& result);

}  // namespace ringtrain
