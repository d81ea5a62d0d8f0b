// One step of training on one rank: batches, forward and backward, reduction, norm, clip, update; or the reason why
// there is no update. The same code on every rank, and the same decisions: all that is decided from comes in one
// message.
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
  /// No communication. run, corpus, state and saver must outlive it. skipped: of the steps before, those without an
  /// update.
  TrainingStep(const RunSteps& run, const Corpus& corpus, RankState& state, CheckpointSaver& saver,
               std::int64_t skipped);

  /// Collective. Throws SharedError on all ranks if one of them cannot read its data. There is no update in a step that
  /// is empty, whose loss or norm is not finite, or whose audit ends the run.
  StepResult run(std::int64_t step);
  /// Returns the steps so far that made no update: empty ones, and those whose numbers were not finite.
  std::int64_t skipped() const { return skipped_; }

 private:
  std::pair<double, double> compute_gradients(std::int64_t step, double denominator, StepDump& dump);
  void share(const std::pair<double, double>& own, double denominator, StepResult& result);
  void sum_over_ranks(std::span<double> sums, bool ring, StepResult& result);
  bool may_update(StepResult& result);
  void update(const StepResult& result);

  const RunSteps& run_;
  const Corpus& corpus_;
  RankState& state_;
  CheckpointSaver& saver_;
  const std::vector<MaskCount> masks_;
  std::int64_t skipped_;        // this and the next: the same on every rank
  std::int64_t nonfinite_ = 0;  // steps in a row up to now whose numbers are not finite
};

}  // namespace ringtrain
