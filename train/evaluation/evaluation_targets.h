// Which tokens an evaluation scores. A target block is M tokens that end at e, inside one document with at least Lmax
// tokens before e; the same blocks serve every context length, so that perplexities compare. The choice is a pure
// function of the file: no mesh, no model, no seed of a run, so that two checkpoints are scored on the same tokens.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/token_file.h"

namespace ringtrain {

struct EvaluationRequest {
  std::vector<std::int64_t> context_lengths;  // ascending
  std::int64_t target_tokens = 256;           // M
  std::int64_t target_blocks = 64;            // at most
};

/// Throws Error(usage) that begins with `source` unless there are lengths, each at least 2, that ascend.
void check_context_lengths(const std::vector<std::int64_t>& lengths, const std::string& source);

/// Throws Error(usage), naming `source` (a flag or key), unless the lengths ascend and 1 <= M <= Lmin / 2.
void check_request(const EvaluationRequest& request, const std::string& source);

struct TargetBlock {
  std::int64_t document = 0;  // of the file
  std::int64_t end = 0;       // e: the last target's index in the file
  friend bool operator==(const TargetBlock&, const TargetBlock&) = default;
};

struct EvaluationTargets {
  std::vector<TargetBlock> blocks;
  std::int64_t documents = 0;  // distinct ones among the blocks
  bool whole_file = false;     // the file has no validation part: blocks come from all its documents
  std::string hash;            // of the list of (document, end)
};

/// Chooses blocks of the file's validation part (of the whole file, if it has none): one from each long enough
/// document, in a permuted order, then a second from each, and so on, never overlapping within a document. Blocks
/// without a weighted token are passed over. Throws Error(data) that names the longest document if none is long enough.
EvaluationTargets choose_targets(const TokenFile& file, const EvaluationRequest& request);

}  // namespace ringtrain
