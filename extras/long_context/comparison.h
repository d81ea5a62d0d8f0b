// Compares a checkpoint with another one on the same targets: the paired difference of nll, and the Kullback-Leibler
// divergence from the other model's predictions to the checkpoint's. Both models process a text together, one chunk of
// logits at a time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "train/engine/rank_state.h"
#include "train/evaluation/evaluation_metric.h"
#include "train/evaluation/evaluation_targets.h"

namespace ringtrain {

struct ComparedModel {
  ModelSource source;
  Config config;
  ParameterTable table;
};

class Comparison : public TargetScorer {
 public:
  /// Collective over world. other: the other model and its config, with the same mesh, layout, and dtype, on the CPU;
  /// pool and world must outlive this. blocks: their number. In addition to the other model, it holds 16 bytes for each
  /// token of a rank's sequence, and 40 for each length, block, and bucket.
  Comparison(const ComparedModel& other, const RankPurpose& purpose, const EvaluationRequest& request,
             std::int64_t blocks, ThreadPool& pool, Communicator& world);

  /// Runs state.batch through both models. nll receives the checkpoint's.
  void score(RankState& state, const TensorView& nll) override;
  void score_nothing(RankState& state) override;
  /// Adds the targets of a block and, on request, all other predictions by position.
  void add(std::int64_t i, std::int64_t block, const Batch& batch, const TensorView& nll,
           std::int64_t first_target) override;
  /// Collective, at the end. Returns the result for the targets of all ranks.
  MetricResult finish(const EvaluationTargets& targets);

 private:
  double* at(std::int64_t i, std::int64_t block, std::int64_t column) {
    return sums_.data() + ((i * blocks_ + block) * columns_ + column) * values;
  }

  static constexpr std::int64_t values = 5;  // weight, targets, nll, nll of the other, divergence
  const std::string path_;                   // of the other model
  RankState other_;
  std::vector<std::int64_t> lengths_;
  std::int64_t blocks_, columns_;  // column 0: the targets; then the buckets of positions
  std::vector<double> other_nll_, divergence_, sums_;
};

/// The metric `--against`: compares with another model, which open_model() opens, on the same targets.
EvaluationMetric against_model(const std::string& path);

}  // namespace ringtrain
