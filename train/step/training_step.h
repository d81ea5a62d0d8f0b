// One step of training on one rank: batches, forward and backward, reduction, norm, clip, update; or the reason why
// there is no update. The same code on every rank, and the same decisions: all that is decided from comes in one
// message.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "data/loader.h"
#include "layers/model/step_work.h"
#include "train/engine/rank_state.h"
#include "train/engine/step_dump.h"
#include "train/run/run.h"
#include "train/step/checkpoint_saver.h"
#include "train/step/rope_check.h"
#include "train/step/step_result.h"

namespace ringtrain {

class TrainingStep {
 public:
  /// No communication. run, state (whose world it uses) and saver must outlive it. log is called on every rank.
  TrainingStep(const Run& run, RankState& state, CheckpointSaver& saver, Log log);

  /// Collective. Throws SharedError on all ranks if one of them cannot read its data, and Error(numeric) on all if loss
  /// or norm are no numbers and the config does not let the run go on; a save under way is then finished first. A step
  /// whose audit ends the run makes no update.
  StepResult run(std::int64_t step);
  /// Collective. Holds the rotary positions of a step to come against those that the weights know, on the ends of the
  /// sequences of its first micro-batches: two forward passes. It allocates nothing and leaves nothing behind. Returns
  /// nothing where rope_check_tokens() has nothing to check, or no end has a target.
  std::optional<RopeCheck> check_rope(std::int64_t step, const KnownRope& known);
  /// Returns the steps so far that made no update: empty ones, and those whose numbers were not finite.
  std::int64_t skipped() const { return skipped_; }

 private:
  const Batch& load_batch(std::int64_t step, std::int64_t micro);
  std::optional<double> loss_of_ends(std::int64_t step, const WindowEnd& end);
  double load_batches(std::int64_t step, StepResult& result);
  std::pair<double, double> compute_gradients(std::int64_t step, double denominator, StepDump& dump);
  void finish(StepDump& dump);
  void sum_over_ranks(std::span<double> sums, bool ring, StepResult& result);
  bool audits(std::int64_t step) const;
  void skip_empty(std::int64_t step);
  void handle_nonfinite(std::int64_t step, const StepResult& result);

  const Run& run_;
  RankState& state_;
  Communicator& world_;
  const std::vector<MaskCount> masks_;
  CheckpointSaver& saver_;
  const Log log_;
  std::int64_t skipped_;               // this and the next: the same on every rank
  std::int64_t skipped_in_a_row_ = 0;  // of them: with numbers that are not finite
};

}  // namespace ringtrain
