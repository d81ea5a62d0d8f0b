// One rank's training loop: every step, and the evaluations, metrics, and checkpoints that are due after some of them.
// All ranks run the same code; rank 0 also writes files and messages. No tensor is allocated after the constructor, and
// the loop asserts this.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "framework/profile/progress.h"
#include "layers/model/step_work.h"
#include "parallel/shared_error.h"
#include "train/engine/rank_state.h"
#include "train/run/run.h"
#include "train/step/checkpoint_saver.h"
#include "train/step/grace_time.h"
#include "train/step/metrics.h"
#include "train/step/training_step.h"

namespace ringtrain {

class RankTrainer {
 public:
  /// Collective. run, world, pool, and trace (null: no recording) must outlive it.
  RankTrainer(const Run& run, Communicator& world, Device device, ThreadPool& pool, RankTrace* trace = nullptr);

  /// Collective. Loads the run's state into memory: the initial state, or that of its checkpoint, which all ranks have
  /// read when this returns. Changes nothing on disk.
  void load();
  /// Takes the last steps before the run's start from its metrics. Only on rank 0, before train().
  void remember(const std::vector<StepReport>& steps);
  /// Call after load(), when the run's folder is ready. Trains from the run's start to its last step, or until a
  /// signal: then saves and stops. Returns done, interrupted, or terminated, the same on every rank.
  ExitCode train();
  /// Call after load(), instead of train(): runs the steps up to this one, and writes nothing to the run's folder.
  /// Returns the result of the last step, the same on every rank.
  StepResult steps_until(std::int64_t step);

 private:
  ExitCode run_steps();
  StepResult do_step(std::int64_t step);
  [[noreturn]] void end_with(const SharedError& error);
  void complete_outputs();
  void record(std::int64_t step, const StepResult& result, double seconds);
  void show(const StepRecord& line);
  /// Requires that the run evaluates. Returns the signal that interrupted it, 0 if none did.
  int evaluate(std::int64_t step);
  void save(std::int64_t step, bool stopped, const StepResult& result);
  void log_grace();
  /// Collective if the run has such a callback. Returns whether rank 0's program wants the run to end after this step.
  bool stop_wanted(std::int64_t step);
  void announce(const std::string& first, bool saved = false) const;
  CheckpointManifest manifest_at(std::int64_t step) const;
  void log(const std::string& line);
  /// Starts to record if the timeline wants this step.
  void trace_step(std::int64_t step);
  void announce_stage(std::int64_t step);
  /// Collective.
  void check_rope(std::int64_t step);
  void require_no_allocation(const char* when) const;

  const Run& run_;
  RankTrace* const trace_;
  const std::unique_ptr<Communicator> traced_world_;  // null: not traced
  RankState state_;
  StepTrend trend_;          // rank 0
  const double peak_flops_;  // of all ranks; 0: unknown
  const UsefulFlops useful_flops_;
  std::int64_t allocations_;              // by the constructor: no more may follow
  bool zero_norm_logged_ = false;         // a gradient norm of 0, logged once
  std::unique_ptr<MetricsFile> metrics_;  // rank 0
  std::unique_ptr<Progress> progress_;    // rank 0
  GraceTime grace_;                       // rank 0
  double grace_logged_ = 0;               // rank 0: the seconds logged; 0: none yet
  CheckpointSaver saver_;                 // destroyed before state_: its thread reads it
  TrainingStep step_;
};

}  // namespace ringtrain
