// Texts of long-context tasks as tokens of a model. Each fits a context length, and records which of its tokens are
// answers.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "data/token_file.h"
#include "data/tokenizer/tokenizer.h"
#include "extras/long_context/task_text.h"
#include "train/evaluation/passes/shared_spans.h"

namespace ringtrain {

/// One scored part of an answer. Tokens are indices in its text.
struct TaskTrial {
  std::int64_t text = 0;                      // index of the text
  std::int64_t task = 0, length = 0;          // indices of the kind and of the context length
  std::int64_t depth = 0;                     // of its needle
  std::int64_t first = 0, tokens = 0;         // its tokens
  std::int64_t decisive = 0;                  // the first token in which the candidates differ
  std::vector<std::int32_t> candidates = {};  // for that position, all different; the right one is the first
};

struct TaskSamples {
  std::vector<TaskKind> kinds;
  std::vector<std::int64_t> lengths;
  TaskSettings settings;
  std::unique_ptr<TokenFile> tokens;  // in memory, one document per text; only answers' tokens have a weight
  std::vector<ReadSpan> spans;        // of each text
  std::vector<TaskTrial> trials;      // by text
};

/// Returns settings.samples texts for each kind, context length, and depth. A text with its answer has as many
/// sentences of haystack as fit the length, including a begin token. A pure function of its arguments. Throws
/// Error(usage) that names the task if a text does not fit a length even without a haystack, or if too few candidates
/// differ in a token.
TaskSamples make_task_samples(std::span<const TaskKind> kinds, std::span<const std::int64_t> lengths,
                              const TaskSettings& settings, const Tokenizer& tokenizer, std::int64_t vocab_size,
                              std::optional<std::int32_t> begin_token = {});

}  // namespace ringtrain
