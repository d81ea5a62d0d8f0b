// Which tokens an evaluation scores, and which tokens the model reads for them. A target block is M tokens that end at
// e, in one document with at least Lmax tokens before e. All context lengths use the same blocks, so that perplexities
// are comparable. With a stride, a block is a whole document, scored in windows of the context length (the strided
// perplexity of Hugging Face's documentation). The choice is a pure function of the file: it does not depend on a mesh,
// a model, or a run's seed, so that two checkpoints are scored on the same tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/token_file.h"

namespace ringtrain {

/// A part of a token file. automatic: its validation part if it has one, otherwise the whole file.
enum class ScoredPart { automatic, validation, whole };

struct EvaluationRequest {
  std::vector<std::int64_t> context_lengths;  // ascending
  std::int64_t target_tokens = 256;           // M
  std::int64_t target_blocks = 64;            // at most
  // 0: blocks, as above. Otherwise whole documents, in windows that move by this many tokens; M and the blocks are
  // unused.
  std::int64_t stride = 0;
  // With a stride equal to the only context length: only documents of at most that length, up to target_blocks of them.
  bool short_documents = false;
  ScoredPart part = ScoredPart::automatic;
  std::optional<bool> trained_on = {};  // whether the model was trained on text of this part; empty: unknown
  // Replaces the first token, at position 0, of each window: tokenizers begin every text with it.
  std::optional<std::int32_t> begin_token = {};
  bool by_position = false;  // also scores every prediction in a block's window, by its position; without a stride
};

/// Throws Error(usage), which begins with `source`, unless there are lengths, each at least 2, in ascending order.
void check_context_lengths(const std::vector<std::int64_t>& lengths, const std::string& source);

/// Throws Error(usage), which names `source` (a flag or key), unless the lengths ascend and 1 <= M <= Lmin / 2, or,
/// with a stride, 1 <= stride < Lmin, or stride = L with a single length.
void check_request(const EvaluationRequest& request, const std::string& source);

/// Sets the token that begins each window to the one with which the file says its documents begin. Returns a message
/// about it, "" if the file says that no token does.
std::string take_begin_token(EvaluationRequest& request, const TokenFile& file);

struct TargetBlock {
  std::int64_t document = 0;  // index in the file
  std::int64_t end = 0;       // e: the last target's index in the file; with a stride, the document's last token
  friend bool operator==(const TargetBlock&, const TargetBlock&) = default;
};

struct EvaluationTargets {
  EvaluationRequest request;  // the request that chose them; its part is the one from which the blocks come
  // How many documents are long enough for the longest context length, and for the shortest. A stride uses all
  // documents.
  std::int64_t long_enough = 0, long_enough_for_shortest = 0;
  std::vector<TargetBlock> blocks;
  std::int64_t documents = 0;  // distinct ones among the blocks
  std::string hash;            // of the list of (document, end)
};

/// A sequence that the model reads: the `length` tokens from `begin` in the file, at positions from 0. Its last
/// `targets` predictions are scored, for a block.
struct TargetSpan {
  std::int64_t block = 0;  // index into the blocks
  std::int64_t begin = 0, length = 0, targets = 0;
  friend bool operator==(const TargetSpan&, const TargetSpan&) = default;
};

/// Returns the spans that score all blocks at a context length L, in the order of the blocks. Blocks: one span of L
/// tokens each. With a stride: windows of L tokens of a document, which begin at 0, stride, 2 stride, ... and end with
/// the document. A window's targets are those of its tokens that no earlier window contained, except the document's
/// first token, which nothing precedes. (The last token of a window is only a target, so the model reads L - 1 tokens.)
/// With a begin token, a document's first window has one more token if the document does not begin with it.
std::vector<TargetSpan> spans_of(const TokenFile& file, const EvaluationTargets& targets, std::int64_t context_length);

/// Chooses blocks from the requested part of the file: one from each document that is long enough, in a permuted order,
/// then a second from each, and so on, never overlapping within a document. Skips blocks without a weighted token. With
/// a stride: all documents of that part that have a target. Throws Error(data), which names the longest document, if
/// none is long enough.
EvaluationTargets choose_targets(const TokenFile& file, const EvaluationRequest& request);

}  // namespace ringtrain
