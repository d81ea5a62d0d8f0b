// A list of spans of a token file, divided among the data ranks: each ring reads one at a time, in turn.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "data/token_file.h"
#include "train/engine/rank_state.h"

namespace ringtrain {

/// A sequence that the model reads: the `length` tokens from `begin` in the file, at positions from 0. Its last
/// `targets` predictions have labels.
struct ReadSpan {
  std::int64_t begin = 0, length = 0, targets = 0;
  std::optional<std::int32_t> begin_token = {};  // replaces the first token
};

/// What a rank does with its spans. Both may be collective: every data rank calls one of them in each round, in the
/// same order.
struct SpanPasses {
  std::function<void(std::int64_t index)> pass;  // the span is in state.batch
  std::function<void()> nothing;                 // for a data rank without a span in the round
  std::function<bool()> stop = {};               // called before each round on all ranks alike; true ends it
  std::string kind = "evaluation";               // of the passes' kernels: see FirstPass
};

/// Collective over state.world. Loads this data rank's spans in turn. If one rank cannot read its data, all throw a
/// SharedError. Resets the model's loss sum and the ring's loads at the end, because they do not belong to training.
/// Returns false if stop() ended it.
bool for_each_span(RankState& state, const TokenFile& file, std::span<const ReadSpan> spans, const SpanPasses& passes);

}  // namespace ringtrain
