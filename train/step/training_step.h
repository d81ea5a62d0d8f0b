// One step of training on one rank: batches, forward and backward, reduction, norm, clip, update; or the reason why
// there is no update. Every rank runs the same code and makes the same decisions: everything that they depend on comes
// in one message.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "train/step/step_batches.h"
#include "train/step/step_result.h"

namespace ringtrain {

class CheckpointSaver;  // train/step/checkpoint_saver.h
class StepDump;         // train/engine/step_dump.h

class TrainingStep {
 public:
  /// No communication. run, corpus, state, and saver must outlive it. skipped: how many earlier steps had no update.
  TrainingStep(const RunSteps& run, const Corpus& corpus, RankState& state, CheckpointSaver& saver,
               std::int64_t skipped);

  /// Collective. Throws SharedError on all ranks if one of them cannot read its data. A step makes no update if it is
  /// empty, if its loss or norm is not finite, or if its audit ends the run.
  StepResult run(std::int64_t step);
  /// Returns how many steps so far made no update: empty ones, and those whose numbers were not finite.
  std::int64_t skipped() const { return skipped_; }

 private:
  std::pair<double, double> compute_gradients(std::int64_t step, double denominator, StepDump& dump);
  void share(const std::pair<double, double>& rank_sums, double denominator, StepResult& result);
  void sum_over_ranks(std::span<double> sums, bool ring, StepResult& result);
  bool may_update(StepResult& result);
  void update(const StepResult& result);

  const RunSteps& run_;
  const Corpus& corpus_;
  RankState& state_;
  CheckpointSaver& saver_;
  const std::vector<MaskCount> masks_;
  std::int64_t skipped_;        // this and the next: the same on every rank
  std::int64_t nonfinite_ = 0;  // consecutive steps up to now whose numbers are not finite
};

}  // namespace ringtrain
