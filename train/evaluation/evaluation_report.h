// What an evaluation tells: the table for people, the JSON for scripts.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "train/evaluation/evaluation_metric.h"
#include "train/evaluation/evaluation_statistics.h"
#include "train/evaluation/evaluation_targets.h"

namespace ringtrain {

struct EvaluationSummary {
  std::string checkpoint;           // "" during training: then the blocks are not listed
  std::int64_t trained_length = 0;  // training.seq_len
  std::string data;                 // the token file
  EvaluationTargets targets;
  std::vector<LengthResult> results;
  std::vector<std::pair<std::string, MetricResult>> metrics = {};  // by the name of their field

  /// Returns how many tokens are scored at every length: those with a weight that is not 0.
  std::int64_t target_tokens() const { return results.empty() ? 0 : results.front().targets; }
};

/// Below so many documents an interval over documents means nothing.
inline constexpr std::int64_t min_documents = 20;

/// Returns the fields of metrics.jsonl and of `evaluate --output`; an interval that does not exist is null.
nlohmann::ordered_json evaluation_json(const EvaluationSummary& summary);
/// Returns a table with a line a length, what the columns are, and what must be said about them.
std::string evaluation_table(const EvaluationSummary& summary);

}  // namespace ringtrain
