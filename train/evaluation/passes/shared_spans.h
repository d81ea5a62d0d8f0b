// A list of spans of a token file, shared by the data ranks: each ring reads one at a time, in turn.
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
  std::optional<std::int32_t> begin_token = {};  // stands in place of the first
};

/// What a rank does with its spans. Both may be collective: every data rank calls one of them for each place in the
/// list, in the same order.
struct SpanPasses {
  std::function<void(std::int64_t index)> pass;  // the span is in state.batch
  std::function<void()> nothing;                 // for a data rank that has no span left
  std::function<bool()> stop = {};               // asked before each round, all ranks alike; true ends it; empty: never
  std::string kind = "evaluation";               // of the passes' kernels: see FirstPass
};

/// Collective over state.world. Loads this data rank's spans in turn. What one rank cannot read is a SharedError on
/// all. The model forgets its loss sum, and the ring its load: neither is of training.
/// Returns false if stop() ended it.
bool for_each_span(RankState& state, const TokenFile& file, std::span<const ReadSpan> spans, const SpanPasses& passes);

}  // namespace ringtrain
