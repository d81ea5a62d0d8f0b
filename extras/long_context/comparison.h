// A checkpoint against another one, on the same targets: the paired difference of nll, and the divergence of Kullback
// and Leibler from the other's predictions to the checkpoint's. The two models go through a text together, a chunk of
// logits at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "train/engine/rank_state.h"
#include "train/evaluation/evaluation_metric.h"
#include "train/evaluation/evaluation_statistics.h"
#include "train/evaluation/evaluation_targets.h"

namespace ringtrain {

/// The two models on some targets. All three are means over targets, paired by document.
struct ComparedTargets {
  std::int64_t first = 0, last = 0;  // positions; 0: the targets of a context length
  std::int64_t targets = 0;
  Estimate against_nll;  // of the other model, nats a target
  Estimate difference;   // nll of the checkpoint minus that of the other
  Estimate kl;           // KL(other || checkpoint), nats a target
};

/// The comparison at one context length.
struct LengthComparison {
  std::int64_t context_length = 0;
  ComparedTargets all;
  std::vector<ComparedTargets> by_position;  // ascending; empty: it was not asked for
};

struct ComparedModel {
  ModelSource source;
  Config config;
  ParameterTable table;
};

class Comparison : public TargetScorer {
 public:
  /// Collective over world. other: the other model and its config, of the same mesh, layout, and dtype, on the CPU;
  /// pool and world must outlive this. blocks: how many there are. Besides the other model it holds 16 bytes for each
  /// token of a rank's sequence, and 40 for each length, block, and bucket.
  Comparison(const ComparedModel& other, const RankPurpose& purpose, const EvaluationRequest& request,
             std::int64_t blocks, ThreadPool& pool, Communicator& world);

  /// Runs state.batch through both models. nll receives the checkpoint's.
  void score(RankState& state, const TensorView& nll) override;
  void score_nothing(RankState& state) override;
  /// Takes the targets of a block, and, if they are asked for, all other predictions by their position.
  void add(std::int64_t i, std::int64_t block, const Batch& batch, const TensorView& nll,
           std::int64_t first_target) override;
  /// Collective, at the end. Returns what all ranks have found, one a length. documents: of each block.
  std::vector<LengthComparison> finish(std::span<const std::int64_t> documents);

 private:
  double* at(std::int64_t i, std::int64_t block, std::int64_t column) {
    return sums_.data() + ((i * blocks_ + block) * columns_ + column) * values;
  }
  ComparedTargets summarised(std::int64_t i, std::int64_t column, std::span<const std::int64_t> documents);

  static constexpr std::int64_t values = 5;  // weight, targets, nll, nll of the other, divergence
  RankState other_;
  std::vector<std::int64_t> lengths_;
  std::int64_t blocks_, columns_;  // column 0: the targets; then the buckets of positions
  std::vector<double> other_nll_, divergence_, sums_;
};

/// Returns the object of `evaluate --output`. against: the other model's path.
nlohmann::ordered_json comparison_json(const std::string& against, const std::vector<LengthComparison>& comparison);
/// Returns a table for people. intervals: whether documents are enough for them.
std::string comparison_table(const std::string& against, const std::vector<LengthComparison>& comparison,
                             bool intervals);

/// The metric `--against`: another model, as open_model() takes it, on the same targets. found, if not null, receives
/// the comparison of each length, and must outlive the evaluation.
std::shared_ptr<const EvaluationMetric> against_model(std::string path, std::vector<LengthComparison>* found = nullptr);

}  // namespace ringtrain
