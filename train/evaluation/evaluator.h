// Perplexity at several context lengths on the same target tokens. For a block that ends at e and a length L, the model
// reads the L tokens [e - L, e), at positions 0..L-1, and its last M predictions are scored; with a stride, it reads
// the windows of whole documents. These spans are distributed over the data ranks; each is one sequence of a ring. Sums
// of a block add up over its ring's ranks in rank order, so the result depends on the mesh only by rounding. The
// trainer uses this between steps, and so does the program `evaluate`.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "data/token_file.h"
#include "train/engine/rank_state.h"
#include "train/evaluation/evaluation_statistics.h"
#include "train/evaluation/evaluation_targets.h"

namespace ringtrain {

class TargetScorer;

/// Called on every rank after each of its data rank's sequences, with the number of tokens in the sequence.
using EvaluationProgress = std::function<void(std::int64_t tokens)>;

/// One scored token at one context length.
struct TokenScore {
  std::int64_t context_length = 0;
  std::int64_t document = 0, index = 0;  // document: in the file; index: of the token in the file
  double weight = 0, nll = 0;            // nats
};

/// Called before each sequence, on all ranks together. Returns whether to stop, the same on every rank. It may
/// communicate.
using EvaluationStop = std::function<bool()>;

/// Returns the document of each block.
std::vector<std::int64_t> documents_of(const EvaluationTargets& targets);

/// Collective over state.world: all ranks pass the same file and targets, and get the same results; empty if stop said
/// so. If one rank cannot read its data, all throw a SharedError. Allocates no tensor. progress and stop may be null.
/// per_token, if not null, receives every scored token with a weight, by length and in the order of the blocks: 16
/// bytes on every rank for each target of each length. scorer, if not null, scores instead of the model.
std::optional<std::vector<LengthResult>> evaluate_targets(
    RankState& state, const TokenFile& file, const EvaluationTargets& targets, const EvaluationProgress& progress,
    const EvaluationStop& stop, std::vector<TokenScore>* per_token = nullptr, TargetScorer* scorer = nullptr);

}  // namespace ringtrain
