#include "train/rank_trainer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <csignal>
#include <cstring>
#include <type_traits>
#include <utility>

#include "framework/config/training_stages.h"
#include "framework/cores.h"
#include "framework/counted.h"
#include "framework/profile/clock.h"
#include "framework/system/compute_device.h"
#include "framework/system/host_name.h"
#include "framework/system/signals.h"
#include "parallel/collectives.h"
#include "parallel/launch/launch.h"
#include "parallel/traced_communicator.h"
#include "train/checkpoint/checkpoint.h"
#include "train/evaluation/evaluation_report.h"
#include "train/evaluation/evaluator.h"
#include "train/models/load_weights.h"
#include "train/models/model_source.h"
#include "train/step/nonfinite.h"
#include "train/step/rope_check.h"

namespace ringtrain {

namespace {

/// Collective. Returns SIGTERM or SIGINT if any rank has seen one, otherwise 0.
int signal_anywhere(Communicator& world) {
  const int signal = requested_signal();
  std::array<std::int64_t, 2> any{signal == SIGINT, signal != 0 && signal != SIGINT};
  all_reduce_max(world, any, {"signals"});
  return any[1] ? SIGTERM : any[0] ? SIGINT : 0;
}

/// Collective. Returns the peaks of all ranks' memory.
std::vector<MemoryUse> gather_peaks(Communicator& world, const Allocator& allocator) {
  constexpr std::size_t numbers = tag_count + 1;
  static_assert(std::is_trivially_copyable_v<MemoryUse> && sizeof(MemoryUse) == numbers * sizeof(std::int64_t));
  const auto peak = std::bit_cast<std::array<std::int64_t, numbers>>(allocator.peak());
  const std::vector<std::int64_t> all = all_gather(world, peak, {"gather of memory peaks"});
  std::vector<MemoryUse> peaks(all.size() / numbers);
  std::memcpy(static_cast<void*>(peaks.data()), all.data(), all.size() * sizeof(std::int64_t));
  return peaks;
}

}  // namespace

RankTrainer::RankTrainer(const Run& run, Communicator& world, Device device, ThreadPool& pool, RankTrace* trace)
    : run_(run),
      trace_(trace),
      traced_world_(trace ? traced(world, *trace) : nullptr),
      state_(run.config, run.table, training_purpose(run.config), world.rank(), device, pool,
             trace ? traced_world_.get() : &world, trace, run.model),
      // Only the transformer's FLOPs are known.
      peak_flops_(run.model.is_transformer() ? run.config.metrics.peak_flops * state_.mesh.size() : 0),
      useful_flops_(useful_flops(run.config.model, run.config.training)),
      allocations_(state_.allocator.allocation_count()),
      progress_(world.rank() == 0 ? std::make_unique<Progress>("train", run.last_step, stderr, ProgressHistory::kept)
                                  : nullptr),
      grace_(!state_.snapshot[0].empty()),
      saver_(
          state_, run, [this] { metrics_->flush(); }, progress_.get()),
      step_(run, run.corpus, state_, saver_, run.start.skipped_steps) {}

ExitCode RankTrainer::train() {
  ExitCode code = ExitCode::done;
  abort_on_error(*state_.world, [&] {  // while the buffers of pending exchanges still live
    if (state_.rank == 0) {
      metrics_ = std::make_unique<MetricsFile>(run_.folder.metrics_path(), run_.config.checkpoint.on_failure,
                                               [this](const std::string& line) { log(line); });
      if (peak_flops_ > 0) {
        const TrainedParts parts = trained_parts(run_.config.model, run_.config.training);
        log(fmt::format("mfu: {}, {:.4g} FLOP/s on all ranks; {}", mfu_formula(parts), peak_flops_,
                        mfu_numbers(parts)));
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

StepResult RankTrainer::steps_until(std::int64_t last) {
  StepResult result;
  abort_on_error(*state_.world, [&] {
    for (std::int64_t step = run_.start.step + 1; step <= last; ++step) result = do_step(step);
    state_.close();
  });
  return result;
}

/// All ranks come here in the same step, and the run ends for another reason than its outputs: a failure of these is
/// only logged. A pending save has a good state, as far as anyone knows.
void RankTrainer::complete_outputs() {
  std::optional<Error> problem = caught([&] { saver_.finish(); });
  const std::optional<Error> unwritten = caught([&] {
    if (metrics_) metrics_->flush();
  });
  if (!problem) problem = unwritten;
  if (!problem) return;
  state_.world->throw_if_aborted();  // by a rank that has already seen the save's end and ends with this error
  log(fmt::format("warning: at the run's end, {}", problem->what()));
}

/// All ranks come here with the same error.
void RankTrainer::end_with(const SharedError& error) {
  complete_outputs();
  fail(error.code(), "{}; {}", error.what(), saver_.what_is_saved());
}

/// Runs a step and logs its outcome. Ends the run if the step's numbers are not finite and the config does not allow it
/// to continue; a pending save then has a good state.
StepResult RankTrainer::do_step(std::int64_t step) {
  StepResult result = step_.run(step);
  const TrainingConfig& training = run_.at(step).training;
  if (result.audit && result.audit->differences > 0 && !result.audit->ends_run) {
    log(fmt::format("warning: {}", result.audit->sentence));
  }
  if (!result.dumped.empty()) log(result.dumped);
  const std::int64_t most = training.on_nonfinite == OnNonfinite::skip ? training.max_skipped_steps : 0;  // in a row
  if (result.nonfinite > most) {
    complete_outputs();
    throw Error(ExitCode::numeric,
                nonfinite_sentence(run_, state_, result, step - step_.skipped(), saver_.what_is_saved()));
  }
  if (result.empty || result.nonfinite > 0) log(skipped_text(result, training.global_batch_size, step_.skipped()));
  return result;
}

ExitCode RankTrainer::run_steps() {
  std::int64_t done = run_.start.step;
  int signal = signal_anywhere(*state_.world);  // after a signal during the start, there is nothing to save
  if (signal == 0 && run_.start.evaluates_first) signal = evaluate(run_.start.step);
  bool stopped = false;
  for (std::int64_t step = run_.start.step + 1; step <= run_.last_step && signal == 0 && !stopped; ++step) {
    trace_step(step);
    announce(fmt::format("finishing step {} and saving{}", step, grace_.bound()));
    announce_stage(step);
    check_rope(step);
    const auto start = std::chrono::steady_clock::now();
    const StepResult result = do_step(step);
    record(step, result, seconds_since(start));
    if (result.audit && result.audit->ends_run) end_with({ExitCode::numeric, result.audit->sentence});
    require_no_allocation("a step");
    signal = result.signal;

    // A signal interrupts or skips an evaluation: saving comes first, and a resumed run repeats the evaluation.
    if (run_.evaluation && step % run_.config.evaluation.interval == 0 && signal == 0) signal = evaluate(step);
    done = step;
    stopped = stop_wanted(step);
    save(step, signal != 0 || stopped, result);
    if (signal == 0 && !stopped && step < run_.last_step) log_grace();
    require_no_allocation("a save");
  }
  if (metrics_) metrics_->flush();
  if (progress_) progress_->finish();
  if (stopped || signal != 0) {
    const std::string by =
        signal == 0 ? "its program" : signal_name(requested_signal() != 0 ? requested_signal() : signal);
    log(fmt::format("stopped by {} after step {} of {}; --resume continues from here", by, done,
                    run_.config.training.steps));
  }
  return signal == 0 ? ExitCode::done : signal == SIGINT ? ExitCode::interrupted : ExitCode::terminated;
}

/// Logs a step that begins a stage, or the run's first step in one.
void RankTrainer::announce_stage(std::int64_t step) {
  const TrainingConfig& training = run_.config.training;
  const int stage = stage_of_step(training, step);
  if (run_.stages.size() == 1 || (step != first_step_of(training, stage) && step != run_.start.step + 1)) return;
  log(fmt::format("stage {} of {}, steps {} to {}: {}", stage + 1, run_.stages.size(), first_step_of(training, stage),
                  last_step_of(training, stage), stage_text(run_.at(step))));
}

/// Runs before the first step with rotary positions or a length that the weights may not know.
void RankTrainer::check_rope(std::int64_t step) {
  const std::shared_ptr<const ModelSource>& source = run_.start.source;
  const bool begins = source && step == 1;
  const int stage = stage_of_step(run_.config.training, step);
  if (!begins && (stage == 0 || step != first_step_of(run_.config.training, stage))) return;
  KnownRope known;
  if (source) known = {.model = source->model, .length = source->context_length};
  if (!begins) {
    known.model = run_.at(step - 1).model;
    for (int before = 0; before < stage; ++before) {
      known.length = std::max(known.length, run_.stages[static_cast<std::size_t>(before)].training.seq_len);
    }
  }
  const std::vector<std::string> lines = ringtrain::check_rope(run_, run_.corpus, state_, step, known);
  require_no_allocation("a check of the rope");
  for (const std::string& line : lines) log(line);
}

void RankTrainer::load() {
  abort_on_error(*state_.world, [&] {
    trace_step(run_.start.step + 1);
    const Span span(state_.stream.trace(), "weights");
    const RunStart& start = run_.start;
    load_weights(state_, start.source.get(), run_.config.training.seed);
    if (start.source && start.source->checkpoint && start.step > 0) {
      load_optimizer_state(state_, *start.source->checkpoint);
    } else {
      state_.optimizer->reset();
    }
    state_.world->barrier({"loading the state"});
  });
}

void RankTrainer::remember(const std::vector<StepReport>& steps) {
  for (const StepReport& step : steps) trend_.add(step.loss, step.grad_norm);
}

void RankTrainer::record(std::int64_t step, const StepResult& result, double seconds) {
  // Nothing is allocated after the first step, so the peaks do not change: they are logged once.
  const bool first = step == run_.start.step + 1;
  const std::vector<MemoryUse> peaks = first ? gather_peaks(*state_.world, state_.allocator) : std::vector<MemoryUse>{};
  if (state_.rank != 0) return;
  const TrainingConfig& training = run_.at(step).training;
  grace_.add_step(seconds);
  StepRecord line{result};
  line.tokens = tokens_done(run_.config.training, step);
  line.seconds = seconds;
  if (run_.stages.size() > 1) line.stage = stage_of_step(run_.config.training, step) + 1;
  line.seq_len = training.seq_len;
  line.time = WallClock::now();
  line.skipped_steps = step_.skipped();
  line.trend = trend_.add(result.loss, result.grad_norm);
  line.tokens_per_second = static_cast<double>(training.global_batch_size * training.seq_len) / seconds;
  line.visible_pairs = result.pairs.forward / static_cast<double>(run_.config.model.num_hidden_layers);
  if (peak_flops_ > 0 && !result.empty) {
    line.mfu = useful_flops_.total(result.held_tokens, result.pairs) / seconds / peak_flops_;
  }
  line.samples = run_.sample_indices(step);
  line.peak = peaks;
  if (first) {
    line.started = {.build = run_.build,
                    .host = host_name(),
                    .device = name_of_device(state_.allocator.device()),
                    .cores = available_cores(),
                    .ranks = run_.ranks,
                    .mesh = run_.config.mesh};
  }
  metrics_->write(metrics_line(line));
  show(line);
  if (run_.callbacks.step) progress_->above([&] { run_.callbacks.step(line); });
}

/// Shows a step to whoever watches, and warns about anything suspicious in it.
void RankTrainer::show(const StepRecord& line) {
  if (!line.trend.loss_spike.empty()) {
    log(fmt::format("warning: step {}: a loss spike: {}", line.step, line.trend.loss_spike));
  }
  if (line.grad_norm == 0 && !std::exchange(zero_norm_logged_, true)) {
    log(fmt::format(
        "warning: step {}: the gradient's norm is 0, so nothing is learned; is model.initializer_range 0, or "
        "does the loss not depend on what is trained? (check names the tensors)",
        line.step));
  }
  progress_->update(line.step,
                    line.empty ? "no token to learn from"
                               : fmt::format("loss={:.4f} norm={:.3f} lr={:.2e}{}", line.loss, line.grad_norm, line.lr,
                                             line.mfu ? fmt::format(" mfu={:.1f}%", 100 * *line.mfu) : ""),
                    line.tokens - tokens_done(run_.config.training, run_.start.step));
  if (line.step != run_.start.step + 2) return;  // the first step is not representative: it also warms up
  const std::int64_t steps = run_.last_step - line.step;
  const double left = line.seconds * static_cast<double>(steps);
  constexpr double soon = 10;
  if (left > soon) {
    log(fmt::format("a step takes {}, so the remaining steps take about {} ({})", human_duration(line.seconds),
                    human_duration(left), counted(steps, "step")));
  }
}

bool RankTrainer::stop_wanted(std::int64_t step) {
  if (!run_.callbacks.stop) return false;
  std::array<std::int64_t, 1> wanted{};
  if (state_.rank == 0) progress_->above([&] { wanted[0] = run_.callbacks.stop(step); });
  all_reduce_max(*state_.world, wanted, {"whether the program stops"});
  return wanted[0] != 0;
}

int RankTrainer::evaluate(std::int64_t step) {
  const EvaluationTargets& targets = *run_.evaluation;
  state_.use_rope(run_.at(step).model);
  const Span span(state_.stream.trace(), "evaluation", {{"step", step}});
  announce(fmt::format("leaving the evaluation after step {} and saving{}", step, grace_.bound()));
  int signal = 0;
  auto last_look = std::chrono::steady_clock::now();
  const auto stop = [&] {
    grace_.add_step(seconds_since(last_look));
    signal = signal_anywhere(*state_.world);
    last_look = std::chrono::steady_clock::now();
    return signal != 0;
  };
  const std::optional<std::vector<LengthResult>> results =
      evaluate_targets(state_, run_.corpus.validation(), targets, nullptr, stop);
  require_no_allocation("an evaluation");
  if (!results) {
    log(fmt::format("the evaluation after step {} was interrupted; --resume repeats it", step));
    return signal;
  }
  if (state_.rank != 0) return 0;
  const int stage = stage_of_step(run_.config.training, step);
  metrics_->write(metrics_line(step, WallClock::now(),
                               {.checkpoint = "",
                                .trained_length = context_length(run_.config, stage),
                                .data = run_.corpus.validation().path(),
                                .targets = targets,
                                .results = *results}));
  std::string text = fmt::format("evaluation after step {}:", step);
  for (const LengthResult& result : *results) {
    text +=
        fmt::format(" {}: nll {:.4f} perplexity {:.3f};", result.context_length, result.nll.value, result.perplexity);
  }
  text.pop_back();
  log(text);
  if (run_.callbacks.evaluation) progress_->above([&] { run_.callbacks.evaluation(step, *results); });
  return 0;
}

/// Advances a pending save, and begins one if this step is due for it.
void RankTrainer::save(std::int64_t step, bool stopped, const StepResult& result) {
  saver_.advance(result.unfinished_saves);
  const std::int64_t interval = run_.config.checkpoint.interval;
  if (interval < 0 && !stopped) {
    if (step == run_.last_step) log(fmt::format("step {} is not saved: checkpoint.interval is {}", step, interval));
    return;
  }
  const bool last = stopped || step == run_.last_step;
  const bool by_steps = interval > 0 && step % interval == 0;
  if (!last && !by_steps && !result.save_is_due) return;
  const Span span(state_.stream.trace(), "checkpoint", {{"step", step}});
  if (last) {
    announce(fmt::format("finishing the save of step {}", step));
    saver_.save_last(manifest_at(step));
    announce("everything is saved; ending", /*saved=*/true);
  } else {
    saver_.begin(manifest_at(step));
  }
}

/// Logs the grace period that the run needs: after its first save, and again if it has grown by half.
void RankTrainer::log_grace() {
  grace_.add_save(saver_.last_seconds());
  if (grace_.seconds() <= 1.5 * grace_logged_) return;
  grace_logged_ = grace_.seconds();
  log(grace_.line());
}

/// Sets the message about the effect of a signal from now on.
void RankTrainer::announce(const std::string& first, bool saved) const {
  if (state_.rank != 0) return;
  const std::string second =
      (saved ? "ended immediately; " : "ended immediately without saving; ") + saver_.what_is_saved();
  announce_signals({.program = "train", .first = first, .second = second, .saved = saved});
}

CheckpointManifest RankTrainer::manifest_at(std::int64_t step) const {
  const std::optional<std::string> definition =
      run_.model.is_transformer() ? std::nullopt : std::optional(run_.model.name);
  return {.step = step,
          .samples = sequences_done(run_.config.training, step),
          .tokens = tokens_done(run_.config.training, step),
          .skipped_steps = step_.skipped(),
          .data_hash = run_.corpus.hash(),
          .tokenizer_hash = run_.corpus.tokenizer_hash(),
          .run = run_.start.run,
          .dtype = name_of(run_.config.training.dtype),
          .model = {name_of(run_.config.model.architecture), run_.table.count(), definition},
          .base = run_.start.base,
          .initial_weights = run_.start.initial_weights,
          .files = {}};
}

void RankTrainer::log(const std::string& line) {
  if (progress_) progress_->log(line);
}

void RankTrainer::trace_step(std::int64_t step) {
  if (trace_) trace_->pause(step < run_.trace.first_step || step > run_.trace.last_step);
}

void RankTrainer::require_no_allocation(const char* when) const {
  const std::int64_t allocated = state_.allocator.allocation_count() - allocations_;
  if (allocated == 0) return;
  if (!run_.model.is_transformer()) {
    fail(ExitCode::usage,
         "{} of the model \"{}\" made {}; make all that a step needs in the constructors of the model and its layers",
         when, run_.model.name, counted(allocated, "tensor"));
  }
  fail(ExitCode::internal, "internal error: {} allocated {}, but all are planned before the first step", when,
       counted(allocated, "tensor"));
}

}  // namespace ringtrain
