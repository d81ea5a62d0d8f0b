// The results of an evaluation: the table for people, the JSON for scripts.
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
  std::string checkpoint;           // "" during training: the report then omits the blocks
  std::int64_t trained_length = 0;  // context_length() of train/models/model_source.h
  std::string data;                 // the token file
  EvaluationTargets targets;
  std::vector<LengthResult> results;
  std::vector<std::pair<std::string, MetricResult>> metrics = {};  // by the name of their field

  /// Returns how many tokens are scored at every length: those with a nonzero weight.
  std::int64_t target_tokens() const { return results.empty() ? 0 : results.front().targets; }
};

/// With fewer documents than this, an interval over documents means nothing.
inline constexpr std::int64_t min_documents = 20;

/// Returns the fields of metrics.jsonl and of `evaluate --output`; an interval that does not exist is null.
nlohmann::ordered_json evaluation_json(const EvaluationSummary& summary);
/// Returns a table with one line per length, an explanation of the columns, and notes on the numbers.
std::string evaluation_table(const EvaluationSummary& summary);

}  // namespace ringtrain
