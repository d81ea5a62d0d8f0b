// Generation on one rank of a ring: the ring prefills the prompt, then each decode step computes one token over the
// sharded cache. Every rank computes each new token's row (it has the weights anyway), so ranks exchange only
// attention's partial states and the chosen token; only rank 0 needs logits and draws.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "train/engine/rank_state.h"
#include "train/generation/token_sampler.h"

namespace ringtrain {

struct GenerationRequest {
  std::vector<std::int32_t> prompt = {};      // at least one token
  std::int64_t new_tokens = 0;                // at most; at least 1
  std::vector<std::int32_t> end_tokens = {};  // each ends the text, and is not part of it
  SamplingOptions sampling = {};
};

struct GenerationRates {
  std::int64_t prompt_tokens = 0, new_tokens = 0;
  double prompt_seconds = 0;  // until the first new token
  double decode_seconds = 0;  // for the tokens after it
  bool ended = false;         // whether an end token ended it
};

/// Called with each new token, on rank 0. Returns whether to continue.
using TokenObserver = std::function<bool(std::int32_t token)>;

/// Generates. Collective over state.world, which is one ring: all ranks pass the same request; only rank 0's observer
/// is called. state: made for generation of this request. Allocates no tensor. Throws Error: numeric; internal, before
/// computing anything, if the prompt has an id that is not a token of the model.
GenerationRates generate(RankState& state, const GenerationRequest& request, const TokenObserver& observer);

}  // namespace ringtrain
