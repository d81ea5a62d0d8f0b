// What an evaluation can do in addition to perplexity: a metric chooses its texts, scores them, and provides a field of
// the JSON and lines of the table. The extras have metrics; the core has none.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/token_file.h"
#include "framework/output/output_file.h"
#include "train/engine/rank_state.h"
#include "train/evaluation/evaluation_targets.h"
#include "train/models/model_source.h"

namespace ringtrain {

/// What an evaluation is about to score. All of it outlives what a metric makes from it.
struct EvaluationSubject {
  const ModelSource& source;
  const Config& config;  // the model's, with mesh, device, and dtype of this evaluation
  const TokenFile& file;
  const EvaluationTargets& targets;
  bool begin_token_given = false;  // by the user: the request's begin token, or no token
};

/// Scores an evaluation's own targets instead of Model::evaluate(), on one rank. Destroyed before the rank's state.
class TargetScorer {
 public:
  virtual ~TargetScorer() = default;
  /// Collective over the ring and, if weights are sharded, over all ranks. nll: float64 [1, T] of state.batch.
  virtual void score(RankState& state, const TensorView& nll) = 0;
  /// Takes part in the other ranks' work in score(), on a rank without a sequence.
  virtual void score_nothing(RankState& state) = 0;
  /// Receives what score() found for a block at the i-th length. Targets are scored from position first_target on.
  virtual void add(std::int64_t i, std::int64_t block, const Batch& batch, const TensorView& nll,
                   std::int64_t first_target) = 0;
};

struct MetricResult {
  std::shared_ptr<const nlohmann::ordered_json> json;  // the field of `evaluate --output`
  std::string lines;                                   // for people
  std::string file_text;                               // of EvaluationMetric::output
};

/// A metric whose texts are chosen, in one process. The threads of its ranks use it.
class PreparedMetric {
 public:
  virtual ~PreparedMetric() = default;
  /// Returns a string that must be the same in all processes.
  virtual std::string identity() const = 0;
  /// Returns how many sequences evaluate() reads, over all data ranks.
  virtual std::int64_t sequences() const { return 0; }
  /// Returns what ranks hold in addition to the model's RankState; empty: nothing.
  virtual std::vector<RankPlan> plans(const RankPurpose& /*purpose*/) const { return {}; }
  /// Collective over state.world. Returns null unless the metric scores the evaluation's own targets; at most one does.
  virtual std::unique_ptr<TargetScorer> make_scorer(RankState& /*state*/, const RankPurpose& /*purpose*/) const {
    return nullptr;
  }
  /// Collective over state.world, after the targets. All ranks return the same. scorer: this metric's own, which has
  /// scored the targets; progress: called on every rank with the number of tokens in each sequence. Throws
  /// Error(numeric) if the weights are not usable.
  virtual MetricResult evaluate(RankState& state, TargetScorer* scorer,
                                const std::function<void(std::int64_t tokens)>& progress) const = 0;
};

/// An additional file that a metric writes.
struct MetricOutput {
  std::string path;
  OutputKind kind;
  OutputMark mark;
};

/// A metric that the user requested.
struct EvaluationMetric {
  std::string name;  // of its JSON field; "--" and the name is its flag
  /// Chooses the texts. No communication. Throws Error(usage, data, checkpoint).
  std::function<std::unique_ptr<PreparedMetric>(const EvaluationSubject& subject)> prepare;
  /// Returns the files that it reads, which no output may overwrite.
  std::function<std::vector<std::string>()> inputs = [] { return std::vector<std::string>(); };
  std::optional<MetricOutput> output = {};
};

}  // namespace ringtrain
