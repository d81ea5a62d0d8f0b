// Whether the rotary positions of a run fit its weights. The last tokens of the first sequences are scored twice:
// alone, as short sequences with the rotary positions that the weights know, and behind the rest of their sequence with
// the run's own. More context costs a model that can use it nothing; positions that it never saw cost nats at once.
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
  ModelConfig model;        // which turns like that
  std::int64_t length = 0;  // the tokens it is meant for; 0: not known
};

/// What both ways give for the same targets.
struct RopeCheck {
  std::int64_t tokens = 0;  // of each sequence, the last ones
  double separate = 0;      // their loss as short sequences with known rotary positions, in nats a token
  double behind = 0;        // their loss behind the rest of their sequence, with the run's
};

/// Returns how many tokens of each sequence such a check scores: at most 2,048, and as many as the weights know. 0:
/// there is nothing to check, for both ways would be the same, no positions turn, or the ring is longer. config: of
/// one stage.
std::int64_t rope_check_tokens(const Config& config, const KnownRope& known);

/// Collective. Compares the rotary positions of a step to come with those that the weights know, on the ends of the
/// sequences of its first micro-batches: two forward passes. It allocates no tensor and leaves nothing behind. Returns
/// what it has found, a line each for the log: none where rope_check_tokens() has nothing to check, or no end has a
/// target. Throws SharedError on all ranks if one of them cannot read its data.
std::vector<std::string> check_rope(const RunSteps& run, const Corpus& corpus, RankState& state, std::int64_t step,
                                    const KnownRope& known);

/// Returns a warning if the run's way loses more than 1 nat against the other, "" if not. It names both losses, both
/// sides' rotary positions, and what to do. config: of the stage that was checked.
std::string rope_warning(const RopeCheck& check, const Config& config, const KnownRope& known);

}  // namespace ringtrain
