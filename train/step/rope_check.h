// Checks that the rotary positions of a run fit its weights. It scores the last tokens of the first sequences twice: as
// separate short sequences with the rotary positions that the weights know, and after the rest of their sequence with
// the run's own. More context costs a model that can use it nothing; positions that it never saw immediately cost nats.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/config/model_config.h"

namespace ringtrain {

struct Config;
struct Corpus;    // data/corpus.h
class RankState;  // train/engine/rank_state.h
struct RunSteps;  // train/run/run_steps.h

/// The rotary positions that weights know.
struct KnownRope {
  ModelConfig model;        // a model with these positions
  std::int64_t length = 0;  // the length in tokens for which it is meant; 0: unknown
};

/// The results of both ways for the same targets.
struct RopeCheck {
  std::int64_t tokens = 0;  // of each sequence, the last ones
  double separate = 0;      // their loss as short sequences with the known rotary positions, in nats per token
  double behind = 0;        // their loss after the rest of their sequence, with the run's
};

/// Returns how many tokens of each sequence such a check scores: at most 2,048, and at most as many as the weights
/// know. 0: there is nothing to check, because both ways would be the same, there are no rotary positions, or the ring
/// is longer. config: of one stage.
std::int64_t rope_check_tokens(const Config& config, const KnownRope& known);

/// Collective. Compares the rotary positions of a future step with those that the weights know, on the ends of the
/// sequences of its first micro-batches: two forward passes. It allocates no tensor and leaves nothing behind. Returns
/// its findings, one line each for the log: none if rope_check_tokens() returns 0, or if no end has a target. Throws
/// SharedError on all ranks if one of them cannot read its data.
std::vector<std::string> check_rope(const RunSteps& run, const Corpus& corpus, RankState& state, std::int64_t step,
                                    const KnownRope& known);

/// Returns a warning if the run's way loses more than 1 nat compared with the other, "" if not. It names both losses,
/// both sides' rotary positions, and what to do. config: of the stage that was checked.
std::string rope_warning(const RopeCheck& check, const Config& config, const KnownRope& known);

}  // namespace ringtrain
