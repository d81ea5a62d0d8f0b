#include "train/step/training_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <csignal>
#include <tuple>

#include "framework/system/signals.h"
#include "parallel/collectives.h"
#include "train/engine/first_pass.h"
#include "train/engine/step_dump.h"
#include "train/run/run_steps.h"
#include "train/step/checkpoint_saver.h"
#include "train/step/schedule.h"

namespace ringtrain {

TrainingStep::TrainingStep(const RunSteps& run, const Corpus& corpus, RankState& state, CheckpointSaver& saver,
                           std::int64_t skipped)
    : run_(run),
      corpus_(corpus),
      state_(state),
      saver_(saver),
      masks_(mask_counts(run.config.model, run.config.training)),
      skipped_(skipped) {}

/// Runs forward, backward, and reduction of the loaded batches. Returns this rank's sums of the loss (times its
/// denominator) and of the squared gradients.
std::pair<double, double> TrainingStep::compute_gradients(std::int64_t step, double denominator, StepDump& dump) {
  TraceTrack* const track = state_.stream.trace();
  const std::int64_t micro_batches = run_.micro_batches(step);
  if (is_audited(run_, step)) begin_audit(run_, state_, step);
  state_.parameters.begin_step();
  for (std::int64_t micro = 0; micro < micro_batches; ++micro) {
    const Span span_of_batch(track, "micro-batch", {{"micro", micro}});
    if (run_.before_forward) run_.before_forward(state_, step);
    const Batch& batch = state_.batch_of(micro);
    dump.begin_micro_batch(batch, run_.sequence_in_step(step, state_.mesh.data_index(state_.rank), micro));
    state_.model->train_step(batch, denominator, /*last=*/micro + 1 == micro_batches);
  }
  {
    const Span finish(track, "gradient reduction");
    state_.parameters.finish_step();
  }
  dump.end_of_gradients();

  // Here the host waits for the device, once per step: everything before was only enqueued.
  const TensorView loss_sum = state_.step_sums.view().rows(0, 1), squares = state_.step_sums.view().rows(1, 2);
  state_.model->take_loss_sum(loss_sum);
  state_.optimizer->sum_of_squares(squares);
  state_.stream.synchronize();
  return {*loss_sum.as<double>(), *squares.as<double>()};
}

StepResult TrainingStep::run(std::int64_t step) {
  const Span span(state_.stream.trace(), "step", {{"step", step}});
  const Config& config = run_.at(step);
  state_.use_rope(config.model);
  FirstPass first_pass(
      state_, fmt::format("step of {} tokens{}", config.training.seq_len, is_audited(run_, step) ? ", audited" : ""));
  StepResult result;
  result.step = step;
  result.lr = learning_rate(config.lr_scheduler, config.optimizer.lr, config.training.steps, step);
  const double denominator = load_batches(run_, corpus_, state_, masks_, result);
  StepDump dump(state_, config, run_.dump, step);
  std::pair<double, double> rank_sums;
  if (!result.empty) rank_sums = compute_gradients(step, denominator, dump);
  share(rank_sums, denominator, result);
  if (may_update(result)) {
    update(result);
    first_pass.end();
    dump.end_of_update();
  }
  result.dumped = dump.finish();
  return result;
}

/// Collective. One message gives all ranks the loss, the norm, how many of them saw SIGINT or another signal, how many
/// are still writing their part of a checkpoint, and whether rank 0's clock wants the next one: so they all decide the
/// same. rank_sums: from compute_gradients.
void TrainingStep::share(const std::pair<double, double>& rank_sums, double denominator, StepResult& result) {
  std::array<double, 6> sums{};
  auto& [loss, squares, interrupted, terminated, unfinished_saves, due] = sums;
  std::tie(loss, squares) = rank_sums;
  const int signal = requested_signal();
  interrupted = signal == SIGINT ? 1 : 0;
  terminated = signal != 0 && signal != SIGINT ? 1 : 0;
  unfinished_saves = saver_.unfinished();
  due = saver_.due();
  sum_over_ranks(sums, /*ring=*/state_.mesh.sequence > 1 && !result.empty, result);
  result.loss = loss / denominator;  // NaN for an empty step
  result.grad_norm = result.empty ? result.loss : std::sqrt(squares);
  result.signal = terminated > 0 ? SIGTERM : interrupted > 0 ? SIGINT : 0;
  result.unfinished_saves = unfinished_saves;
  result.save_is_due = due > 0;
}

/// Collective. Adds sums over all ranks, in rank order. The same message transfers the ring's load.
void TrainingStep::sum_over_ranks(std::span<double> sums, bool ring, StepResult& result) {
  std::vector<double> values(sums.begin(), sums.end());
  if (ring) {
    const RingLoads loads = state_.model->take_ring_loads();
    result.ring_wait_seconds = loads[0].wait_seconds() + loads[1].wait_seconds();
    append(values, loads);
  }
  const std::vector<double> all = all_gather(*state_.world, values, {"sum of loss and gradient norm"});
  std::ranges::fill(sums, 0.0);
  std::vector<std::span<const double>> loads;
  for (std::span<const double> remaining(all); !remaining.empty(); remaining = remaining.subspan(values.size())) {
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += remaining[i];
    loads.push_back(remaining.subspan(sums.size(), values.size() - sums.size()));
  }
  if (ring) result.ring = ring_report(state_.mesh, loads);
}

/// Collective. All ranks decide the same, because all have the same sums. A step without an update counts, and so do
/// its samples; weights and moments stay.
bool TrainingStep::may_update(StepResult& result) {
  if (result.empty) {
    ++skipped_;
    return false;
  }
  if (is_audited(run_, result.step)) {
    result.audit = end_audit(run_, state_, result.step);
    if (result.audit->ends_run) return false;
  }
  if (std::isfinite(result.loss) && std::isfinite(result.grad_norm)) {
    nonfinite_ = 0;
    result.updates = result.step - skipped_;
    return true;
  }
  ++skipped_;
  result.nonfinite = ++nonfinite_;
  return false;
}

void TrainingStep::update(const StepResult& result) {
  {
    const Span update(state_.stream.trace(), "optimizer");
    saver_.let_snapshot_end();  // of the state before this update
    // The optimizer counts only its own updates: a skipped step does not change it.
    state_.optimizer->update(result.lr, result.updates,
                             clip_factor(result.grad_norm, run_.config.optimizer.max_grad_norm));
  }
  state_.parameters.weights_changed();
}

}  // namespace ringtrain
