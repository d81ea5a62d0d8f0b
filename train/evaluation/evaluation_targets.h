// Which tokens an evaluation scores, and which tokens the model reads for them. A target block is M tokens that end at
// e, inside one document with at least Lmax tokens before e; the same blocks serve every context length, so that
// perplexities compare. With a stride a block is a whole document, which windows of the context length score (the
// strided perplexity of Hugging Face's documentation). The choice is a pure function of the file: no mesh, no model, no
// seed of a run, so that two checkpoints are scored on the same tokens.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/token_file.h"

namespace ringtrain {

/// A part of a token file. automatic: its validation part if it has one, else the whole.
enum class ScoredPart { automatic, validation, whole };

struct EvaluationRequest {
  std::vector<std::int64_t> context_lengths;  // ascending
  std::int64_t target_tokens = 256;           // M
  std::int64_t target_blocks = 64;            // at most
  // 0: blocks, as above. Else whole documents, by windows that move by so many tokens; M and the blocks do not count.
  std::int64_t stride = 0;
  // With a stride that is the one context length: documents of at most so many tokens alone, as many as target_blocks.
  bool short_documents = false;
  ScoredPart part = ScoredPart::automatic;
  std::optional<bool> trained_on = {};  // whether the model was trained on text of this part; none: not known
  // Stands at position 0 of each window, in place of the window's first token: tokenizers begin every text with it.
  std::optional<std::int32_t> begin_token = {};
  bool by_position = false;  // also score every prediction of a block's window, by its position; without a stride
};

/// Throws Error(usage) that begins with `source` unless there are lengths, each at least 2, that ascend.
void check_context_lengths(const std::vector<std::int64_t>& lengths, const std::string& source);

/// Throws Error(usage), naming `source` (a flag or key), unless the lengths ascend and 1 <= M <= Lmin / 2, or, with a
/// stride, 1 <= stride < Lmin, or stride = L of a single one.
void check_request(const EvaluationRequest& request, const std::string& source);

/// Sets the token that begins each window, as the file says that its documents begin. Returns a sentence on it, "" if
/// the file says that none does.
std::string take_begin_token(EvaluationRequest& request, const TokenFile& file);

struct TargetBlock {
  std::int64_t document = 0;  // of the file
  std::int64_t end = 0;       // e: the last target's index in the file; with a stride the document's last token
  friend bool operator==(const TargetBlock&, const TargetBlock&) = default;
};

struct EvaluationTargets {
  EvaluationRequest request;  // by which they were chosen; its part is the one that the blocks come from
  // How many documents are long enough for the longest context length, and for the shortest. A stride takes all.
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
/// tokens each. A stride: windows of L tokens of a document, which begin at 0, stride, 2 stride, ... and end with the
/// document. Of a window's tokens those are targets that no earlier window had, but not the document's first, before
/// which there is nothing. (The last token of a window is a target alone, so the model reads L - 1 tokens.) With
/// a begin token a document's first window has one token more where the document does not begin with it.
std::vector<TargetSpan> spans_of(const TokenFile& file, const EvaluationTargets& targets, std::int64_t context_length);

/// Chooses blocks of the part of the file that is asked for: one from each long enough
/// document, in a permuted order, then a second from each, and so on, never overlapping within a document. Blocks
/// without a weighted token are passed over. With a stride: all documents of that part that have a target. Throws
/// Error(data) that names the longest document if none is long enough.
EvaluationTargets choose_targets(const TokenFile& file, const EvaluationRequest& request);

}  // namespace ringtrain
