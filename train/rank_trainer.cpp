#include "train/rank_trainer.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <span>

#include "framework/counted.h"
#include "framework/system/signals.h"
#include "parallel/collectives.h"
#include "parallel/launch/launch.h"
#include "parallel/shared_error.h"
#include "parallel/traced_communicator.h"
#include "train/engine/step_dump.h"
#include "train/evaluation/evaluation_report.h"
#include "train/evaluation/evaluator.h"
#include "train/models/load_weights.h"
#include "train/nonfinite.h"
#include "train/schedule.h"

namespace ringtrain {

namespace {
double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}
}  // namespace

RankTrainer::RankTrainer(const Run& run, Communicator& world, Device device, ThreadPool& pool, RankTrace* trace)
    : run_(run),
      trace_(trace),
      traced_world_(trace ? traced(world, *trace) : nullptr),
      world_(trace ? *traced_world_ : world),
      state_(run.config, run.table, training_purpose(run.config), world.rank(), device, pool, &world_, trace),
      skipped_steps_(run.start.skipped_steps),
      peak_flops_(run.config.metrics.peak_flops * static_cast<double>(state_.mesh.size())),
      useful_flops_(useful_flops(run.config.model, run.config.training, run.table)),
      allocations_(state_.allocator.allocation_count()),
      grace_(!state_.snapshot.empty()),
      saver_(
          state_, run, [this] { metrics_->flush(); }, [this](const std::string& line) { log(line); }) {
  if (state_.rank == 0) progress_ = std::make_unique<Progress>("train", run.last_step);
}

RankTrainer::~RankTrainer() = default;

ExitCode RankTrainer::train() {
  ExitCode code = ExitCode::done;
  abort_on_error(world_, [&] {  // while the buffers of exchanges under way still live
    if (state_.rank == 0) {
      metrics_ = std::make_unique<MetricsFile>(
          run_.folder.metrics_path(), run_.config.checkpoint.on_failure, [this](const std::string& line) { log(line); },
          run_.config.metrics.tensorboard ? run_.folder.path() : "");
      if (peak_flops_ > 0) {
        log(fmt::format("mfu: {}, {:.4g} FLOP/s on all ranks; {:.4g} FLOPs a step", mfu_formula, peak_flops_,
                        useful_flops_));
      }
    }
    try {
      code = run_steps();
      state_.close();
    } catch (const SharedError& error) {
      end_with(error);
    }
  });
  return code;
}

/// All ranks come here with the same error. A save under way is of a state that was good: it is seen through.
void RankTrainer::end_with(const SharedError& error) {
  if (const std::optional<Error> problem = caught([&] { saver_.finish(); })) {
    state_.world->throw_if_aborted();  // by a rank that has seen the save's end already and ends with this error
    log(fmt::format("warning: the save under way failed: {}", problem->what()));
  }
  fail(error.code(), "{}; {}", error.what(), saver_.what_is_saved());
}

ExitCode RankTrainer::run_steps() {
  std::int64_t done = run_.start.step;
  int signal = signal_anywhere();  // one that came during the start has nothing to save
  if (signal == 0 && run_.evaluates_first) signal = evaluate(run_.start.step);
  for (std::int64_t step = run_.start.step + 1; step <= run_.last_step && signal == 0; ++step) {
    trace_step(step);
    const auto start = std::chrono::steady_clock::now();
    const StepResult result = run_step(step);
    record(step, result, seconds_since(start));
    require_no_allocation("a step");
    signal = result.signal;

    // A signal breaks an evaluation off, or leaves it out: saving comes first, and a resumed run makes up for it.
    if (run_.targets && step % run_.config.evaluation.interval == 0 && signal == 0) signal = evaluate(step);
    done = step;
    save(step, signal != 0, result.unfinished_saves);
    log_grace(/*again=*/false);
    require_no_allocation("a save");
  }
  if (signal != 0) {
    log(fmt::format("stopped by {} after step {} of {}; --resume goes on from here",
                    signal_name(requested_signal() != 0 ? requested_signal() : signal), done,
                    run_.config.training.steps));
  }
  log_grace(/*again=*/true);
  for (const std::string& line : ring_.lines()) log(line);
  return signal == 0 ? ExitCode::done : signal == SIGINT ? ExitCode::interrupted : ExitCode::terminated;
}

void RankTrainer::load() {
  abort_on_error(world_, [&] {
    load_state();
    world_.barrier({"loading the state"});
  });
}

void RankTrainer::load_state() {
  trace_step(run_.start.step + 1);
  const Span span(state_.stream.trace(), "weights");
  const RunStart& start = run_.start;
  if (start.source) {
    load_weights(state_, *start.source);
  } else {
    state_.model.initialise(run_.config.training.seed);
    state_.optimizer->initialise_weights(run_.config.training.seed);
  }
  if (start.source && start.source->checkpoint && !start.weights_only) {
    load_optimizer_state(state_, *start.source->checkpoint);
  } else {
    state_.optimizer->reset();
  }
}

const Batch& RankTrainer::load_batch(std::int64_t step, std::int64_t micro) {
  const Span span(state_.stream.trace(), "batch", {{"micro", micro}});
  const Config& config = run_.config;
  const std::vector<Sample> samples = run_.samples_of(step, state_.mesh.data_index(state_.rank), micro);
  Batch& batch = state_.batch_of(micro);
  load_windows(batch, run_.corpus, samples, config.training.seq_len, config.data.packing, state_.shard);
  return batch;
}

/// Loads the step's micro-batches. Return the sum of all targets' weights over dp x sp x accumulation: the step's one
/// denominator. Each rank's batches count its own shard, so the plain sum counts each target once. What one rank cannot
/// read is a SharedError on all.
double RankTrainer::load_batches(std::int64_t step) {
  state_.model.wait_for_batch();  // no wait: the step before was read to its loss
  std::array<double, 2> sums{};   // weights, ranks that could not read
  const std::optional<Error> problem = caught([&] {
    for (std::int64_t micro = 0; micro < run_.micro_batches(); ++micro) sums[0] += load_batch(step, micro).weight_sum;
  });
  if (problem) sums = {0, 1};
  all_reduce_sum(world_, sums, {"sum of target weights"});
  if (sums[1] > 0) {
    if (auto shared = shared_error(world_, problem, {"data that cannot be read"})) throw SharedError(*shared);
  }
  return sums[0];
}

/// Forward, backward and reduction of the loaded batches.
RankTrainer::OwnSums RankTrainer::compute_gradients(std::int64_t step, double denominator) {
  TraceTrack* const track = state_.stream.trace();
  const std::int64_t micro_batches = run_.micro_batches();
  state_.model.zero_gradients();
  StepDump dump(state_, run_.config, run_.dump, step);
  for (std::int64_t micro = 0; micro < micro_batches; ++micro) {
    const Span span_of_batch(track, "micro-batch", {{"micro", micro}});
    if (run_.before_forward) run_.before_forward(state_, step);
    const bool last = micro + 1 == micro_batches;
    const Batch& batch = state_.batch_of(micro);
    dump.begin_micro_batch(batch, run_.sequence_in_step(state_.mesh.data_index(state_.rank), micro));
    state_.model.train_step(batch, denominator, last ? state_.reduction.get() : nullptr);
  }
  {
    const Span finish(track, "gradient reduction");
    state_.reduction->finish();
  }
  if (const std::string told = dump.finish(world_); !told.empty()) log(told);

  // Here the host waits for the device, once a step: all before it was ordered, none of it waited for.
  const TensorView loss_sum = state_.step_sums.view().rows(0, 1), squares = state_.step_sums.view().rows(1, 2);
  state_.model.take_loss_sum(loss_sum);
  state_.optimizer->sum_of_squares(squares);
  state_.stream.synchronize();
  return {*loss_sum.as<double>(), *squares.as<double>()};
}

RankTrainer::StepResult RankTrainer::run_step(std::int64_t step) {
  TraceTrack* const track = state_.stream.trace();
  const Span span(track, "step", {{"step", step}});
  const double denominator = load_batches(step);
  StepResult result;
  result.empty = !(denominator > 0);
  const OwnSums own = result.empty ? OwnSums{} : compute_gradients(step, denominator);

  // One message tells all ranks the loss, the norm, whether any of them saw a signal, and whether any still writes its
  // part of a checkpoint: they decide alike.
  // The ring's load travels with it.
  const int signal = requested_signal();
  std::array<double, 5> sums{own.loss, own.squares, signal == SIGINT ? 1.0 : 0.0,
                             signal != 0 && signal != SIGINT ? 1.0 : 0.0, saver_.unfinished()};
  result.ring = sum_over_ranks(sums, /*ring=*/state_.mesh.sequence > 1 && !result.empty);
  result.loss = sums[0] / denominator;  // of an empty step: no number
  result.norm = result.empty ? result.loss : std::sqrt(sums[1]);
  result.signal = sums[3] > 0 ? SIGTERM : sums[2] > 0 ? SIGINT : 0;
  result.unfinished_saves = sums[4];
  result.lr = learning_rate(run_.config.lr_scheduler, run_.config.optimizer.lr, run_.config.training.steps, step);
  if (result.empty) {
    skip_empty(step);
    return result;
  }
  if (!std::isfinite(result.loss) || !std::isfinite(result.norm)) {
    handle_nonfinite(step, result);
    return result;
  }
  skipped_in_a_row_ = 0;
  result.loss_spike = loss_spike_.is_spike(result.loss);
  {
    const Span update(track, "optimizer");
    // The optimizer counts its own updates: a skipped step has left no trace in it.
    state_.optimizer->update(result.lr, step - skipped_steps_,
                             clip_factor(result.norm, run_.config.optimizer.max_grad_norm));
  }
  const Span gather(track, "gather weights");
  state_.reduction->gather_weights();
  return result;
}

/// Return the report of the ring's load, none where it has none. Collective: sums become those of all ranks, in rank
/// order.
std::optional<RingReport> RankTrainer::sum_over_ranks(std::span<double> sums, bool ring) {
  std::vector<double> own(sums.begin(), sums.end());
  ring_wait_seconds_ = 0;
  if (ring) {
    const RingLoad load = state_.model.take_ring_load();
    ring_wait_seconds_ = load.forward.wait_seconds() + load.backward.wait_seconds();
    append(own, load);
  }
  const std::vector<double> all = all_gather(world_, own, {"sum of loss and gradient norm"});
  std::ranges::fill(sums, 0.0);
  std::vector<std::span<const double>> loads;
  for (std::span<const double> rest(all); !rest.empty(); rest = rest.subspan(own.size())) {
    for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += rest[i];
    loads.push_back(rest.subspan(sums.size(), own.size() - sums.size()));
  }
  if (!ring) return std::nullopt;
  return ring_report(state_.mesh, loads);
}

/// All ranks come here in the same step. The step counts, and so do its samples; weights and moments stay.
void RankTrainer::skip_empty(std::int64_t step) {
  ++skipped_steps_;
  const std::int64_t sequences = run_.config.training.global_batch_size;
  log(fmt::format(
      "warning: step {}: {} a token to learn from (weights of 0, or documents of one token); skipped: "
      "weights and moments stay as they are ({} so far)",
      step, sequences == 1 ? "its sequence does not have" : fmt::format("none of its {} sequences has", sequences),
      counted(skipped_steps_, "skipped step")));
}

/// All ranks come here in the same step, since all have the same sums. Weights and moments are still those of the step
/// before. Ends the run, or lets it go on without an update.
void RankTrainer::handle_nonfinite(std::int64_t step, const StepResult& result) {
  const TrainingConfig& training = run_.config.training;
  const bool skips = training.on_nonfinite == OnNonfinite::skip;
  ++skipped_steps_;
  ++skipped_in_a_row_;
  if (skips && skipped_in_a_row_ <= training.max_skipped_steps) {
    log(fmt::format("warning: {}; skipped: weights and moments stay as they are ({} so far)",
                    nonfinite_numbers(step, result.loss, result.norm), counted(skipped_steps_, "skipped step")));
    return;
  }
  NonfiniteStep known;
  known.step = step;
  known.loss = result.loss;
  known.norm = result.norm;
  known.in_a_row = skipped_in_a_row_;
  if (skips) known.limit = training.max_skipped_steps;
  known.updates = step - skipped_steps_;
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

void RankTrainer::record(std::int64_t step, const StepResult& result, double seconds) {
  // Nothing is allocated after the first step, so the peaks stay: they are told once.
  const std::vector<MemoryUse> peaks = peaks_logged_ ? std::vector<MemoryUse>{} : gather_peaks();
  peaks_logged_ = true;
  if (state_.rank != 0) return;
  const TrainingConfig& training = run_.config.training;
  grace_.add_step(seconds);
  StepRecord line;
  line.step = step;
  line.time = WallClock::now();
  line.tokens = tokens_at(step);
  line.loss = result.loss;
  line.grad_norm = result.norm;
  line.lr = result.lr;
  line.skipped_steps = skipped_steps_;
  line.loss_spike = result.loss_spike;
  line.empty = result.empty;
  line.seconds = seconds;
  line.tokens_per_second = static_cast<double>(training.global_batch_size * training.seq_len) / seconds;
  if (peak_flops_ > 0 && !result.empty) line.mfu = useful_flops_ / seconds / peak_flops_;
  line.loss_z = result.empty ? std::nullopt : loss_z_.add(result.loss);
  line.grad_norm_z = result.empty ? std::nullopt : grad_norm_z_.add(result.norm);
  line.ring_wait_seconds = ring_wait_seconds_;
  line.samples = run_.sample_indices(step);
  line.peak = peaks;
  line.ring = result.ring;
  if (result.ring) ring_.add(*result.ring, seconds);
  metrics_->write(metrics_line(line));
  if (result.loss_spike) log(fmt::format("warning: step {}: a loss spike: {}", step, loss_spike_.last_spike()));
  progress_->update(step,
                    result.empty ? "no token to learn from"
                                 : fmt::format("loss={:.4f} norm={:.3f} lr={:.2e}{}", result.loss, result.norm,
                                               result.lr, line.mfu ? fmt::format(" mfu={:.1f}%", 100 * *line.mfu) : ""),
                    static_cast<double>(line.tokens - run_.start.tokens));
}

int RankTrainer::signal_anywhere() {
  const int own = requested_signal();
  std::array<std::int64_t, 2> any{own == SIGINT, own != 0 && own != SIGINT};
  all_reduce_max(world_, any, {"signals"});
  return any[1] ? SIGTERM : any[0] ? SIGINT : 0;
}

int RankTrainer::evaluate(std::int64_t step) {
  if (!run_.targets) return 0;  // this run does not evaluate
  const Span span(state_.stream.trace(), "evaluation", {{"step", step}});
  int signal = 0;
  auto last_look = std::chrono::steady_clock::now();
  const auto stop = [&] {
    grace_.add_step(seconds_since(last_look));
    signal = signal_anywhere();
    last_look = std::chrono::steady_clock::now();
    return signal != 0;
  };
  const std::optional<std::vector<LengthResult>> results =
      evaluate_targets(state_, run_.corpus.validation(), run_.evaluation, *run_.targets, nullptr, stop);
  require_no_allocation("an evaluation");
  if (!results) {
    log(fmt::format("the evaluation after step {} is broken off; --resume makes up for it", step));
    return signal;
  }
  if (state_.rank != 0) return 0;
  metrics_->write(metrics_line(step, WallClock::now(),
                               summary_of("", run_.config.training.seq_len, run_.corpus.validation().path(),
                                          run_.scored, *run_.targets, *results)));
  std::string text = fmt::format("evaluation after step {}:", step);
  for (const LengthResult& result : *results) {
    text +=
        fmt::format(" {}: nll {:.4f} perplexity {:.3f};", result.context_length, result.nll.value, result.perplexity);
  }
  text.pop_back();
  log(text);
  return 0;
}

/// Moves a save under way on, and begins one if this is a step for it.
void RankTrainer::save(std::int64_t step, bool stopped, double unfinished) {
  saver_.advance(unfinished);
  const std::int64_t interval = run_.config.checkpoint.interval;
  if (interval < 0 && !stopped) {
    if (step == run_.last_step) log(fmt::format("step {} is not saved: checkpoint.interval is {}", step, interval));
    return;
  }
  const bool last = stopped || step == run_.last_step;
  if (!last && (interval == 0 || step % interval != 0)) return;
  const Span span(state_.stream.trace(), "checkpoint", {{"step", step}});
  if (last) {
    saver_.save_last(manifest_at(step));
  } else {
    saver_.begin(manifest_at(step));
  }
}

/// Tells what grace time the run needs: after the first save, and again if it has become more.
void RankTrainer::log_grace(bool again) {
  if (saver_.last_seconds() == 0) return;
  grace_.add_save(saver_.last_seconds());
  if (grace_.seconds() <= grace_logged_ || (grace_logged_ > 0 && !again)) return;
  grace_logged_ = grace_.seconds();
  log(grace_.line());
}

CheckpointManifest RankTrainer::manifest_at(std::int64_t step) const {
  CheckpointManifest manifest;
  manifest.step = step;
  manifest.samples = run_.start.samples + (step - run_.start.step) * run_.config.training.global_batch_size;
  manifest.tokens = tokens_at(step);
  manifest.skipped_steps = skipped_steps_;
  manifest.data_hash = run_.data_hash;
  manifest.tokenizer_hash = run_.corpus.tokenizer_hash();
  manifest.dtype = name_of(run_.config.training.dtype);
  manifest.architecture = name_of(run_.config.model.architecture);
  manifest.parameters = run_.table.count();
  return manifest;
}

std::vector<MemoryUse> RankTrainer::gather_peaks() {
  const MemoryUse& own = state_.allocator.peak();
  std::array<std::int64_t, tag_count + 1> values{};
  for (std::size_t tag = 0; tag < tag_count; ++tag) values[tag] = static_cast<std::int64_t>(own.by_tag[tag]);
  values[tag_count] = static_cast<std::int64_t>(own.total);
  const std::vector<std::int64_t> all = all_gather(world_, values, {"gather of memory peaks"});
  std::vector<MemoryUse> peaks;
  for (std::size_t at = 0; at < all.size(); at += values.size()) {
    MemoryUse peak;
    for (std::size_t tag = 0; tag < tag_count; ++tag) peak.by_tag[tag] = static_cast<std::size_t>(all[at + tag]);
    peak.total = static_cast<std::size_t>(all[at + tag_count]);
    peaks.push_back(peak);
  }
  return peaks;
}

void RankTrainer::log(const std::string& line) {
  if (progress_) progress_->log(line);
}

void RankTrainer::trace_step(std::int64_t step) {
  if (trace_) trace_->pause(step < run_.trace.first_step || step > run_.trace.last_step);
}

void RankTrainer::require_no_allocation(const char* when) const {
  const std::int64_t now = state_.allocator.allocation_count();
  if (now != allocations_) {
    fail(ExitCode::internal, "internal error: {} allocated {} tensors, but all are planned before the first step", when,
         now - allocations_);
  }
}

std::int64_t RankTrainer::tokens_at(std::int64_t step) const {
  const TrainingConfig& training = run_.config.training;
  return run_.start.tokens + (step - run_.start.step) * training.global_batch_size * training.seq_len;
}

}  // namespace ringtrain
