#include "extras/planner/run_times.h"

#include <algorithm>
#include <cmath>

#include "framework/config/config.h"
#include "train/engine/checkpoint_size.h"

namespace ringtrain {

namespace {

double evaluation_seconds(const StepCase& step) {
  const EvaluationConfig& evaluation = step.config.evaluation;
  // Each data rank takes a block at a time.
  const double rounds =
      std::ceil(static_cast<double>(evaluation.target_blocks) / static_cast<double>(step.config.mesh.data));
  double seconds = 0;
  for (const std::int64_t length : evaluation.context_lengths) {
    Config config = step.config;
    config.data.packing = Packing::concat;
    config.training.seq_len = length;
    config.training.micro_batch_size = 1;
    config.training.recompute = Recompute::none;  // nothing is kept
    StepCase one{.config = config, .table = step.table, .hardware = step.hardware, .max_events = step.max_events};
    one.forward_alone = true;
    seconds += rounds * simulate_step(one).step_seconds;
  }
  return seconds;
}

/// Adds saves: weights, and both moments of those that are trained, each rank its share.
void add_saves(const StepCase& step, RunTimes& times) {
  const CheckpointConfig& checkpoint = step.config.checkpoint;
  if (checkpoint.interval < 0) return;
  const Hardware& hardware = step.hardware;
  const std::int64_t world = step.config.mesh.data * step.config.mesh.sequence;
  const auto ranks = static_cast<double>(world);
  times.checkpoint_bytes = checkpoint_bytes(step.config, step.table);
  const auto bytes = static_cast<double>(times.checkpoint_bytes);
  const double of_a_node = bytes * static_cast<double>(hardware.ranks_of_node(world)) / ranks;
  const double write = hardware.node_storage_bandwidth > 0 ? of_a_node / hardware.node_storage_bandwidth : 0;
  const double copy =
      bytes / ranks /
      (hardware.host_bandwidth > 0 ? hardware.host_bandwidth
                                   : rank_rates(hardware, step.config.mesh, step.config.training.dtype).memory / 2);
  times.last_save_seconds = copy + write;
  if (checkpoint.interval == 0) return;
  const auto interval = static_cast<double>(checkpoint.interval);
  times.saves = std::max(0.0, std::ceil(times.steps / interval) - 1);
  times.save_seconds = copy + (checkpoint.background ? std::max(0.0, write - interval * times.step_seconds) : write);
}

}  // namespace

RunTimes run_times(const StepCase& step, double steps, double step_seconds) {
  RunTimes times{.steps = steps, .step_seconds = step_seconds};
  if (step.config.evaluation.interval > 0) {
    times.evaluations = std::floor(steps / static_cast<double>(step.config.evaluation.interval));
    if (times.evaluations > 0) times.evaluation_seconds = evaluation_seconds(step);
  }
  add_saves(step, times);
  checked_seconds(times.seconds());
  return times;
}

}  // namespace ringtrain
