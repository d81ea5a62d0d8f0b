// Generation on one rank of a ring: prefill of the prompt by the ring, then a decode step a token over the sharded
// cache. Every rank computes each new token's row (its weights are there anyway), so what moves between ranks is
// attention's partial states and the chosen token; rank 0 alone needs logits and draws.
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
  double decode_seconds = 0;  // of those after it
  bool ended = false;         // by an end token
};

/// Told each new token, on rank 0. Returns whether to go on.
using TokenObserver = std::function<bool(std::int32_t token)>;

/// Generates. Collective over state.world, which is one ring: all ranks pass the same request; rank 0's observer is
/// asked. state: made for generation of this request. Allocates no tensor. Throws Error: numeric; internal, before
/// anything is computed, if the prompt has an id that is no token of the model.
GenerationRates generate(RankState& state, const GenerationRequest& request, const TokenObserver& observer);

}  // namespace ringtrain
