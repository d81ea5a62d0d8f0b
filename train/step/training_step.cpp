#include "train/step/training_step.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <tuple>
#include <utility>
#include <vector>

#include "data/loader.h"
#include "framework/counted.h"
#include "framework/profile/clock.h"
#include "framework/system/signals.h"
#include "layers/model_spec.h"
#include "parallel/collectives.h"
#include "parallel/ring/ring_load.h"
#include "parallel/shared_error.h"
#include "train/engine/first_pass.h"
#include "train/step/nonfinite.h"
#include "train/step/schedule.h"

namespace ringtrain {

TrainingStep::TrainingStep(const Run& run, RankState& state, CheckpointSaver& saver, Log log)
    : run_(run),
      state_(state),
      world_(*state.world),
      masks_(mask_counts(run.config.model, run.config.training)),
      saver_(saver),
      log_(std::move(log)),
      skipped_(run.start.skipped_steps) {}

const Batch& TrainingStep::load_batch(std::int64_t step, std::int64_t micro) {
  const Span span(state_.stream.trace(), "batch", {{"micro", micro}});
  const Config& config = run_.at(step);
  const std::vector<Sample> samples = run_.samples_of(step, state_.mesh.data_index(state_.rank), micro);
  Batch& batch = state_.batch_of(micro);
  load_windows(batch, run_.corpus, samples, config.training.seq_len, config.data.packing, state_.shard);
  return batch;
}

/// Loads the step's micro-batches and counts their pairs. Returns the weights of all targets: the step's one
/// denominator. Each rank's batches count its own shard's weights, so the plain sum counts each target once; the first
/// rank of a ring counts the pairs of its sequences. What one rank cannot read is a SharedError on all.
double TrainingStep::load_batches(std::int64_t step, StepResult& result) {
  state_.model->wait_for_batch();  // no wait: the step before was read to its loss
  const Segment sequence{0, 1, run_.at(step).training.seq_len};
  std::array<double, 4> sums{};  // one message carries them
  auto& [weights, forward_pairs, backward_pairs, unreadable_ranks] = sums;
  const std::optional<Error> problem = caught([&] {
    for (std::int64_t micro = 0; micro < run_.micro_batches(step); ++micro) {
      const Batch& batch = load_batch(step, micro);
      weights += batch.weight_sum;
      if (state_.shard.ring_rank > 0) continue;
      const LayerPairs pairs = layer_pairs(masks_, [&](const AttentionMask& mask) {
        return static_cast<double>(visible_pairs(mask, {&sequence, 1}, {&sequence, 1}, batch.B, batch.document_starts));
      });
      forward_pairs += pairs.forward;
      backward_pairs += pairs.backward;
    }
  });
  if (problem) unreadable_ranks = 1;
  all_reduce_sum(world_, sums, {"sum of target weights"});
  if (unreadable_ranks > 0) {
    if (auto shared = shared_error(world_, problem, {"data that cannot be read"})) throw SharedError(*shared);
  }
  result.pairs = {.forward = forward_pairs, .backward = backward_pairs};
  result.empty = !(weights > 0);
  return weights;
}

/// Forward, backward and reduction of the loaded batches. Returns this rank's sums of the loss (times its denominator)
/// and of the squared gradients.
std::pair<double, double> TrainingStep::compute_gradients(std::int64_t step, double denominator, StepDump& dump) {
  TraceTrack* const track = state_.stream.trace();
  const std::int64_t micro_batches = run_.micro_batches(step);
  if (audits(step)) {
    state_.model->audit().begin_step(run_.config.training.seed, step, state_.rank, micro_batches,
                                     run_.config.training.micro_batch_size, state_.batch.T);
  }
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

  // Here the host waits for the device, once a step: all before it was ordered, none of it waited for.
  const TensorView loss_sum = state_.step_sums.view().rows(0, 1), squares = state_.step_sums.view().rows(1, 2);
  state_.model->take_loss_sum(loss_sum);
  state_.optimizer->sum_of_squares(squares);
  state_.stream.synchronize();
  return {*loss_sum.as<double>(), *squares.as<double>()};
}

void TrainingStep::finish(StepDump& dump) {
  if (const std::string told = dump.finish(world_); !told.empty()) log_(told);
}

StepResult TrainingStep::run(std::int64_t step) {
  TraceTrack* const track = state_.stream.trace();
  const Span span(track, "step", {{"step", step}});
  state_.use_rope(run_.at(step).model);
  FirstPass first_pass(
      state_, fmt::format("step of {} tokens{}", run_.at(step).training.seq_len, audits(step) ? ", audited" : ""));
  StepResult result;
  result.step = step;
  const double denominator = load_batches(step, result);
  StepDump dump(state_, run_.at(step), run_.dump, step);
  // One message tells all ranks the loss, the norm, how many of them saw SIGINT or another signal, and how many still
  // write their part of a checkpoint: they decide alike.
  std::array<double, 5> sums{};
  auto& [loss, squares, interrupted, terminated, unfinished_saves] = sums;
  if (!result.empty) std::tie(loss, squares) = compute_gradients(step, denominator, dump);
  const int signal = requested_signal();
  interrupted = signal == SIGINT ? 1 : 0;
  terminated = signal != 0 && signal != SIGINT ? 1 : 0;
  unfinished_saves = saver_.unfinished();
  sum_over_ranks(sums, /*ring=*/state_.mesh.sequence > 1 && !result.empty, result);
  result.loss = loss / denominator;  // of an empty step: no number
  result.grad_norm = result.empty ? result.loss : std::sqrt(squares);
  result.signal = terminated > 0 ? SIGTERM : interrupted > 0 ? SIGINT : 0;
  result.unfinished_saves = unfinished_saves;
  result.lr = learning_rate(run_.config.lr_scheduler, run_.config.optimizer.lr, run_.config.training.steps, step);
  if (result.empty) {
    skip_empty(step);
    return result;
  }
  if (audits(step)) {
    result.audit = audit_over_ranks(run_, state_, step, state_.model->audit().take_report());
    if (result.audit->ends_run) {
      finish(dump);
      return result;
    }
    if (result.audit->departures > 0) log_(fmt::format("warning: {}", result.audit->sentence));
  }
  if (!std::isfinite(result.loss) || !std::isfinite(result.grad_norm)) {
    finish(dump);
    handle_nonfinite(step, result);
    return result;
  }
  skipped_in_a_row_ = 0;
  {
    const Span update(track, "optimizer");
    saver_.let_snapshot_end();  // of the state before this update
    // The optimizer counts its own updates: a skipped step has left no trace in it.
    state_.optimizer->update(result.lr, step - skipped_,
                             clip_factor(result.grad_norm, run_.config.optimizer.max_grad_norm));
  }
  state_.parameters.weights_changed();
  first_pass.end();
  dump.end_of_update();
  finish(dump);
  return result;
}

/// Returns the mean loss of the ends of the sequences of a step's first micro-batches.
std::optional<double> TrainingStep::loss_of_ends(std::int64_t step, const WindowEnd& end) {
  const Config& config = run_.at(step);
  Batch& batch = state_.batch_of(0);
  state_.model->wait_for_batch();
  const std::optional<Error> problem = caught([&] {
    load_window_ends(batch, run_.corpus, run_.samples_of(step, state_.mesh.data_index(state_.rank), 0),
                     config.training.seq_len, config.data.packing, state_.shard, end);
  });
  if (auto shared = shared_error(world_, problem, {"data that cannot be read"})) throw SharedError(*shared);
  state_.model->evaluate(batch, {});
  std::array<double, 2> sums{state_.model->take_loss_sum(), batch.weight_sum};
  state_.model->take_ring_loads();
  all_reduce_sum(world_, sums, {"loss of a check of the rope"});
  if (!(sums[1] > 0)) return std::nullopt;
  return sums[0] / sums[1];
}

std::optional<RopeCheck> TrainingStep::check_rope(std::int64_t step, const KnownRope& known) {
  const Config& config = run_.at(step);
  const std::int64_t tokens = rope_check_tokens(config, known);
  if (tokens == 0) return std::nullopt;
  const auto start = std::chrono::steady_clock::now();
  const Span span(state_.stream.trace(), "check of the rope");
  FirstPass first_pass(state_, fmt::format("check of the rope at {} tokens", tokens));
  state_.use_rope(known.model);
  const std::optional<double> alone = loss_of_ends(step, {.tokens = tokens, .whole = false});
  state_.use_rope(config.model);
  const std::optional<double> behind = loss_of_ends(step, {.tokens = tokens, .whole = true});
  first_pass.end();
  if (!alone || !behind) return std::nullopt;
  return RopeCheck{.tokens = tokens, .alone = *alone, .behind = *behind, .seconds = seconds_since(start)};
}

/// Collective. Adds sums over all ranks, in rank order. The ring's load travels with them.
void TrainingStep::sum_over_ranks(std::span<double> sums, bool ring, StepResult& result) {
  std::vector<double> own(sums.begin(), sums.end());
  if (ring) {
    const RingLoads loads = state_.model->take_ring_loads();
    result.ring_wait_seconds = loads[0].wait_seconds() + loads[1].wait_seconds();
    append(own, loads);
  }
  const std::vector<double> all = all_gather(world_, own, {"sum of loss and gradient norm"});
  std::ranges::fill(sums, 0.0);
  std::vector<std::span<const double>> loads;
  for (std::span<const double> rest(all); !rest.empty(); rest = rest.subspan(own.size())) {
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += rest[i];
    loads.push_back(rest.subspan(sums.size(), own.size() - sums.size()));
  }
  if (ring) result.ring = ring_report(state_.mesh, loads);
}

bool TrainingStep::audits(std::int64_t step) const {
  const std::int64_t interval = run_.config.training.audit.interval;
  return interval > 0 && step % interval == 0;
}

/// All ranks come here in the same step. The step counts, and so do its samples; weights and moments stay.
void TrainingStep::skip_empty(std::int64_t step) {
  ++skipped_;
  const std::int64_t sequences = run_.at(step).training.global_batch_size;
  log_(fmt::format(
      "warning: step {}: {} a token to learn from (weights of 0, or documents of one token); skipped: "
      "weights and moments stay as they are ({} so far)",
      step, sequences == 1 ? "its sequence does not have" : fmt::format("none of its {} sequences has", sequences),
      counted(skipped_, "skipped step")));
}

/// All ranks come here in the same step, since all have the same sums. Weights and moments are still those of the step
/// before. Ends the run, or lets it go on without an update.
void TrainingStep::handle_nonfinite(std::int64_t step, const StepResult& result) {
  const TrainingConfig& training = run_.config.training;
  const bool skips = training.on_nonfinite == OnNonfinite::skip;
  ++skipped_;
  ++skipped_in_a_row_;
  if (skips && skipped_in_a_row_ <= training.max_skipped_steps) {
    log_(fmt::format("warning: {}; skipped: weights and moments stay as they are ({} so far)",
                     nonfinite_numbers(step, result.loss, result.grad_norm), counted(skipped_, "skipped step")));
    return;
  }
  NonfiniteStep known;
  known.step = step;
  known.loss = result.loss;
  known.norm = result.grad_norm;
  known.in_a_row = skipped_in_a_row_;
  if (skips) known.limit = training.max_skipped_steps;
  known.updates = step - skipped_;
  if (run_.start.source) known.checkpoint = run_.start.source->path;
  saver_.finish();  // the state that it saves was good
  const std::string own = nonfinite_weights(state_);
  const auto bad = shared_error(world_, own.empty() ? std::nullopt : std::optional(Error(ExitCode::numeric, own)),
                                {"weights that are no numbers"});
  if (bad) known.bad_weights = bad->what();
  known.samples = run_.sample_indices(step);
  known.saved = saver_.what_is_saved();
  throw Error(ExitCode::numeric, nonfinite_sentence(known));
}

}  // namespace ringtrain
