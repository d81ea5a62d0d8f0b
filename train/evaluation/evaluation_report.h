// What an evaluation tells: the table for people, the JSON for scripts.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "train/evaluation/evaluation_metric.h"
#include "train/evaluation/evaluation_statistics.h"
#include "train/evaluation/evaluation_targets.h"
#include "train/evaluation/scored_part.h"

namespace ringtrain {

struct EvaluationSummary {
  std::string checkpoint;           // "" during training
  std::int64_t trained_length = 0;  // training.seq_len
  std::int64_t documents = 0;       // that the target blocks come from
  std::int64_t target_blocks = 0;
  std::int64_t stride = 0;         // of the windows over whole documents; 0: target blocks
  std::int64_t target_tokens = 0;  // scored at every length: with a weight that is not 0
  std::string target_hash;
  std::optional<std::int32_t> begin_token;  // stands at position 0 of each window
  std::string data;                         // the token file
  ScoredChoice part;
  std::int64_t long_enough = 0, long_enough_for_shortest = 0;  // documents, as in EvaluationTargets
  std::vector<TargetBlock> blocks;                             // what is scored; none: it is not listed
  std::vector<LengthResult> results;
  std::vector<std::pair<std::string, MetricResult>> metrics;  // by the name of their field
};

/// Below so many documents an interval over documents means nothing.
inline constexpr std::int64_t min_documents = 20;

EvaluationSummary summary_of(const std::string& checkpoint, std::int64_t trained_length, const std::string& data,
                             const ScoredChoice& part, const EvaluationTargets& targets,
                             std::vector<LengthResult> results);

/// Returns the fields of metrics.jsonl and of `evaluate --output`; an interval that does not exist is null.
nlohmann::ordered_json evaluation_json(const EvaluationSummary& summary);
/// Returns a table with a line a length, what the columns are, and what must be said about them.
std::string evaluation_table(const EvaluationSummary& summary);

}  // namespace ringtrain
