#include "train/trainer.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <iterator>
#include <limits>
#include <optional>

#include "data/token_manifest.h"
#include "framework/config/read_config.h"
#include "framework/config/training_stages.h"
#include "framework/cores.h"
#include "framework/counted.h"
#include "framework/dump/dump_index.h"
#include "framework/error.h"
#include "framework/profile/progress.h"
#include "framework/sequence/mesh.h"
#include "framework/storage/files.h"
#include "framework/storage/hash.h"
#include "framework/system/signals.h"
#include "layers/model_spec.h"
#include "parallel/launch/agreement.h"
#include "parallel/launch/communicator_factory.h"
#include "parallel/rank_zero.h"
#include "parallel/ring/ring_load.h"
#include "parallel/shared_error.h"
#include "train/engine/memory_check.h"
#include "train/evaluation/scored_part.h"
#include "train/models/adapters/kept_base.h"
#include "train/models/model_source.h"
#include "train/models/model_tokenizer.h"
#include "train/rank_trainer.h"
#include "train/run/checkpoint_space.h"
#include "train/run/metrics_history.h"
#include "train/step/schedule.h"
#include "train/step/step_trend.h"
#include "train/trace_file.h"

namespace ringtrain {

namespace {

LaunchOptions launch_options(const MeshConfig& mesh) {
  constexpr double unwinding_seconds = 4;  // leaves time within the promised 5 s after a timeout
  return {static_cast<int>(mesh.data * mesh.sequence), mesh.timeout_seconds, mesh.backend, unwinding_seconds};
}

LocalRanks local_ranks(const MeshConfig& mesh, const Launcher& launcher) {
  const int ranks = launch_options(mesh).ranks;
  return {launcher.ranks_here(ranks), launcher.ranks_of_process(ranks)};
}

/// Returns the number of compute threads of each rank on this machine.
int compute_threads(const MeshConfig& mesh, const Launcher& launcher) {
  return threads_per_rank(mesh.threads_per_rank, static_cast<int>(local_ranks(mesh, launcher).here.size()));
}

/// Refuses a ring longer than its sequences: a kernel accepts a rank without tokens, but nobody wants one.
void check_ring(const Config& config) {
  const auto check = [&, ring = config.mesh.sequence](const char* name, std::int64_t length) {
    if (ring <= length) return;
    fail(ExitCode::usage, "mesh.sequence = {} is more than {} = {}: some ranks would hold no token", ring, name,
         length);
  };
  for (const Config& stage : configs_of_stages(config)) check("training.seq_len", stage.training.seq_len);
  if (config.evaluation.interval == 0) return;
  check("the shortest of evaluation.context_lengths", config.evaluation.context_lengths.front());
}

/// Returns the part of a run's first lines about windows that hold whole documents.
std::string whole_text(const WholeWindows& whole, std::int64_t seq_len, LongDocuments longer) {
  std::int64_t held = 0;
  for (const WindowRange& window : whole.windows) held += window.tokens;
  const double full = 100 * static_cast<double>(held) / (static_cast<double>(std::ssize(whole.windows) * seq_len));
  if (whole.longer == 0) return fmt::format(" with whole documents, {:.1f}% full", full);
  const std::string what = longer == LongDocuments::cut
                               ? "each cut into several windows"
                               : fmt::format("{} left out", counted(whole.lost_tokens, "token"));
  return fmt::format(", {:.1f}% full; documents of more than {} tokens: {} of {}, {} (data.longer: {})", full, seq_len,
                     whole.longer, whole.documents, what, name_in(long_documents_names, longer));
}

/// Logs all windows.
void log_windows(const Corpus& corpus, const RunSteps& run, const Log& log) {
  for (const auto& [seq_len, sampler] : run.samplers) {
    for (std::size_t i = 0; i < corpus.files.size(); ++i) {
      std::int64_t dropped = 0;
      const std::int64_t windows = corpus.window_count(i, seq_len, &dropped);
      std::string line =
          fmt::format("{}: {} of {} tokens", corpus.files[i]->path(), counted(windows, "window"), seq_len);
      if (run.config.data.packing == Packing::whole) {
        line += whole_text(corpus.whole_windows.at(seq_len)[i], seq_len, corpus.longer);
      } else if (dropped > 0) {
        line += fmt::format("; the end of its training part, {}, does not fill a window and is never used",
                            counted(dropped, "token"));
      }
      log(line);
    }
  }
}

std::string positions_text(const SegmentList& segments) {
  std::string text;
  for (const Segment& segment : segments) {
    text += text.empty() ? "" : " and ";
    if (segment.count == 1) {
      text += std::to_string(segment.start);
    } else if (segment.stride == 1) {
      text += fmt::format("{}-{}", segment.start, segment.last());
    } else {
      text += fmt::format("{}, {}, ... {}", segment.start, segment.position(1), segment.last());
    }
  }
  return text.empty() ? "none" : text;
}

/// config: of one stage.
std::string mesh_report(const Config& config, const Launcher& launcher) {
  const Mesh mesh{static_cast<int>(config.mesh.data), static_cast<int>(config.mesh.sequence)};
  std::string text =
      fmt::format("mesh: {} data x {} sequence = {}, {}; {} per rank; layout {}\n", mesh.data, mesh.sequence,
                  counted(mesh.size(), "rank"), launcher.description(),
                  counted(compute_threads(config.mesh, launcher), "compute thread"), name_of(config.mesh.layout));
  constexpr int max_listed = 64, few = 8;
  const int listed = mesh.size() <= max_listed ? mesh.size() : few;
  for (int rank = 0; rank < listed; ++rank) {
    const SegmentList segments =
        shard_segments(config.mesh.layout, config.training.seq_len, mesh.sequence, mesh.sequence_index(rank));
    text += fmt::format("  rank {}: data {}, sequence {}: {} of {} positions: {}\n", rank, mesh.data_index(rank),
                        mesh.sequence_index(rank), token_count(segments), config.training.seq_len,
                        positions_text(segments));
  }
  if (listed < mesh.size()) text += fmt::format("  ... and {} more ranks\n", mesh.size() - listed);
  if (mesh.sequence > 1) {
    std::vector<double> pairs(static_cast<std::size_t>(mesh.sequence));  // summed over the layers
    for (const auto& [mask, layers] : layers_by_mask(config.model)) {
      const auto each = pairs_by_rank(mask, config.mesh.layout, config.training.seq_len, mesh.sequence);
      for (std::size_t rank = 0; rank < pairs.size(); ++rank) {
        pairs[rank] += static_cast<double>(each[rank]) * static_cast<double>(layers.size());
      }
    }
    text += fmt::format(
        "  attention: the busiest rank has {:.3f} x the mean number of query-key pairs (document ends are ignored)\n",
        imbalance(pairs));
  }
  return text;
}

std::string data_report(const Run& run) {
  const TrainingConfig& training = run.config.training;
  std::string text;
  for (std::size_t i = 0; i < run.stages.size(); ++i) {
    const TrainingConfig& stage = run.stages[i].training;
    const std::int64_t first = first_step_of(training, static_cast<int>(i));
    const std::int64_t steps = last_step_of(training, static_cast<int>(i)) - first + 1;
    const std::int64_t sequences = steps * stage.global_batch_size, windows = run.samplers.at(stage.seq_len).windows();
    if (run.stages.size() > 1)
      text += fmt::format("stage {} from step {}: {}; ", i + 1, first, stage_text(run.stages[i]));
    text +=
        fmt::format("data: {} of {} tokens, hash {}; {} of {}: {:.2f} epochs, {} tokens\n", counted(windows, "window"),
                    stage.seq_len, run.corpus.hash(), counted(steps, "step"),
                    counted(stage.global_batch_size, "sequence"), 1.0 * sequences / windows, sequences * stage.seq_len);
  }
  if (const std::string empty = empty_steps_text(run.empty_steps); !empty.empty()) text += "data: " + empty + "\n";
  if (!run.evaluation) return text;
  const EvaluationTargets& targets = *run.evaluation;
  const std::string documents = counted(targets.documents, "document");
  const std::string what = targets.request.short_documents
                               ? fmt::format("{}, each whole,", documents)
                               : fmt::format("{} of {} tokens from {}", counted(std::ssize(targets.blocks), "block"),
                                             targets.request.target_tokens, documents);
  return text + fmt::format("evaluation: {} of {}, hash {}\n", what,
                            part_text(run.corpus.validation().path(), targets.request), targets.hash);
}

/// Returns what each rank of a run will hold.
std::vector<RankPlan> plans_of(const Run& run) {
  return plan_ranks(run.config, run.table, training_purpose(run.config), run.model);
}

/// Returns whether nothing of a run is left to do.
bool is_finished(const Run& run) {
  return run.start.step >= run.last_step && !run.start.evaluates_first;
}

/// Returns a run's first line: its range of steps, its size, and its needs.
std::string start_text(const Run& run, const std::vector<RankPlan>& plans, const CheckpointSpace& space) {
  if (is_finished(run)) {
    return fmt::format(
        "{}: nothing is left to do: step {} is done, the last is {}; to train longer, {}", run.folder.path(),
        run.start.step, run.last_step,
        run.last_step < run.config.training.steps ? "leave out --stop-after" : "add --set training.steps=N");
  }
  const TrainingConfig& first = run.at(run.start.step + 1).training;
  const std::string frozen = run.table.count(Part::frozen) == 0
                                 ? ""
                                 : fmt::format(" ({} of them trained)", human_count(run.table.count(Part::trainable)));
  const std::string steps = run.start.step < run.last_step
                                ? fmt::format("steps {} to {} of {} tokens", run.start.step + 1, run.last_step,
                                              first.global_batch_size * first.seq_len)
                                : fmt::format("only the evaluation after step {}", run.start.step);
  return fmt::format("{}: {}; {} parameters{}; {} of memory for {}, {} of disk for each of at most {}",
                     run.folder.path(), steps, human_count(run.table.count()), frozen, human_bytes(total_bytes(plans)),
                     counted(run.config.mesh.data * run.config.mesh.sequence, "rank"), human_bytes(space.each),
                     counted(space.most, "checkpoint"));
}

/// What all ranks must agree about before they start: their config, key by key, their data, and where they begin.
std::vector<AgreedValue> facts_of(const Run& run) {
  std::vector<AgreedValue> facts{{"the run's folder (--output)", whole_path(run.folder.path())}};
  for (const ConfigDifference& difference : differences(Config{}, run.config)) {
    facts.push_back({difference.key, difference.after});
  }
  facts.push_back({"the model's definition", run.model.name});
  facts.push_back({"the data's hash", run.corpus.hash()});
  facts.push_back({"the evaluation targets' hash", run.evaluation ? run.evaluation->hash : "none"});
  facts.push_back({"the checkpoint to begin with", run.start.source ? run.start.source->identity : "none"});
  facts.push_back({"the last step", std::to_string(run.last_step)});
  facts.push_back({"the timeline's file (--trace)", run.trace.path.empty() ? "none" : run.trace.path});
  facts.push_back({"the step to dump", run.dump.folder.empty() ? "none" : std::to_string(run.dump.step)});
  facts.push_back({"whether an evaluation comes first", run.start.evaluates_first ? "yes" : "no"});
  return facts;
}

/// Returns the content of the run's folder, after checking everything that the run will write, and makes the options
/// keep its rule for long documents. A plan only logs the reason why a run could not start there, and is then made for
/// an empty folder.
FolderContent check_outputs(TrainOptions& options, const RunFolder& folder, const Log& log, const Launcher& launcher) {
  if (launcher.is_rank_zero()) folder.check_writable();  // no other process writes into it
  check_trace(options.trace, launcher);
  if (!options.dump.folder.empty() && launcher.is_rank_zero()) check_dump_folder(options.dump.folder);
  if (options.start.resume && !options.dry_run) folder.wait_for_lock();
  FolderContent content = folder.look();
  Config config = options.config;
  config.data.longer = longer_so_far(options.start, content, config.data);
  const auto refusal = caught([&] { check_folder(options.start, folder, content, config); });
  if (!refusal) {
    options.config = config;
    return content;
  }
  if (!options.dry_run) throw Error(*refusal);
  log(fmt::format("this is the plan of a new run, which could not start here: {}", refusal->what()));
  return {};
}

/// Chooses what the run's evaluations score; nothing if it has no evaluations.
std::optional<EvaluationTargets> choose_evaluation(const Config& config, const Corpus& corpus, const Log& log) {
  if (config.evaluation.interval <= 0) return std::nullopt;
  EvaluationRequest request{config.evaluation.context_lengths, config.evaluation.target_tokens,
                            config.evaluation.target_blocks};
  request.short_documents = config.evaluation.whole_documents;
  if (request.short_documents) request.stride = config.evaluation.context_lengths.front();
  check_request(request, "evaluation");
  choose_part(corpus, config, request);
  log(fmt::format("evaluation: scores {}", part_text(corpus.validation().path(), request)));
  if (const std::string begin = take_begin_token(request, corpus.validation()); !begin.empty())
    log("evaluation: " + begin);
  return choose_targets(corpus.validation(), request);
}

/// Decides where the run begins. Everything else in the run is already known, except what depends on this.
RunStart start_of(const Run& run, const TrainOptions& options, const FolderContent& content, const Log& log) {
  const std::string data_hash = run.corpus.hash();
  RunStart start =
      choose_start(options.start, run.folder, content, run.config, use_of(options), data_hash, log, run.model);
  if (start.source && start.step == 0) {  // otherwise the data are the checkpoint's own
    for (const auto& file : run.corpus.files) {
      if (const auto remark = check_tokens(*start.source, *file)) log(*remark);
    }
  }
  if (start.run.empty()) start.run = hash_bytes(to_yaml(run.config) + data_hash);
  start.found = content.mark();
  // A run that a signal stops saves at once: the next run repeats the evaluation.
  start.evaluates_first = run.evaluation && start.step > 0 && content.metrics.bytes() > 0 &&
                          start.step % run.config.evaluation.interval == 0 &&
                          !content.metrics.holds_evaluation(start.step);
  return start;
}

/// Returns the future steps that teach nothing, and logs them. Throws Error(usage) if the step to dump is one of them,
/// or not one of the run's.
EmptySteps foresee_empty_steps(const Run& run, const Log& log) {
  const DumpRequest& dump = run.dump;
  if (!dump.folder.empty() && (dump.step <= run.start.step || dump.step > run.last_step)) {
    fail(ExitCode::usage, "--dump-step {}: give a step after {}, up to {}", dump.step, run.start.step, run.last_step);
  }
  EmptySteps steps = find_empty_steps(run.corpus, run, run.start.step);
  if (const std::string empty = empty_steps_text(steps); !empty.empty()) log("data.train: " + empty);
  return steps;
}

/// Prepares the run's folder to continue from where the run begins: the first change of its contents. Needs its lock.
/// Returns what its metrics keep of the last steps before.
std::vector<StepReport> begin_folder(const Run& run, const Log& log) {
  const FolderContent content = run.folder.look();
  if (content.mark() != run.start.found) {
    fail(ExitCode::usage, "{}: another run trained here while this one was starting; start this run again",
         run.folder.path());
  }
  run.folder.begin(run.config);
  if (const auto remark = keep_tokenizer(run.start.source.get(), run.corpus, run.folder.path())) log(*remark);
  if (run.start.base) {
    keep_base(*run.start.source, run.folder.path());
    if (const auto warning = base_warning(*run.start.base, run.folder.path())) log(*warning);
  }
  run.folder.checkpoints().continue_from(run.start.step, log);
  const MetricsHistory::Cut cut = content.metrics.cut(run.start.step);
  if (cut.bytes > 0) {
    log(fmt::format("{}: removed {}: an incomplete line, or lines of steps after {}, which this run writes again",
                    run.folder.metrics_path(), counted(cut.bytes, "byte"), run.start.step));
  }
  if (cut.damaged > 0) {
    log(fmt::format(
        "{}: {}, the first of them line {}, {} not metrics of a run; they are kept, and this run continues after them",
        run.folder.metrics_path(), counted(cut.damaged, "line"), cut.first_damaged, cut.damaged == 1 ? "is" : "are"));
  }
  return content.metrics.numbers_up_to(run.start.step, StepTrend::window);
}

FileLock begin_dump(const Run& run) {
  return begin_dump_folder(run.dump.folder, dump_index_of(run.at(run.dump.step), run.dump.step));
}

/// Removes a checkpoint whose deletion was interrupted, for a run that has nothing more to do.
void sweep(const RunFolder& folder, const Log& log) {
  if (!is_directory(folder.checkpoints_path())) return;
  const FileLock lock = folder.lock(log);
  folder.checkpoints().continue_from(std::numeric_limits<std::int64_t>::max(), log);
}

/// Allows a run to delete the checkpoint with which this one began. Called once per process, when nothing needs it
/// anymore.
void release_source(const Run& run, const Communicator& world, const Launcher& launcher) {
  if (run.start.source && world.rank() == launcher.process()) run.start.source->release();
}

/// Calls body with each rank's trainer, which has loaded its state, after rank 0 has called `first`. Rank 0 calls
/// `last` when no trainer is left, while the others wait for it, however long that takes.
void on_ranks(const Run& run, const Log& log, Launcher& launcher, TraceFile& timeline,
              const std::function<void()>& first, const std::function<void(RankTrainer&, Communicator&)>& body,
              const std::function<void()>& last = {}) {
  const auto [here, of_process] = local_ranks(run.config.mesh, launcher);
  const int threads = compute_threads(run.config.mesh, launcher);
  require_runnable(std::ssize(here), threads);
  // Processes that a launcher has bound to cores see only their own.
  const std::string warning = oversubscription(static_cast<int>(of_process.size()), threads, available_cores());
  if (!warning.empty()) log(warning);
  launcher.launch(launch_options(run.config.mesh), [&](Communicator& world) {
    require_agreement(world, facts_of(run));
    const Device device = device_of(run.config.training, world.rank(), here);
    require_carrier(run.config.mesh, world, device, launcher);
    run_on_rank_zero(world, first);
    timeline.begin(world);
    {
      ThreadPool pool(threads);
      RankTrainer trainer(run, world, device, pool, timeline.rank(world.rank()));
      trainer.load();  // if something does not open or does not fit, nothing has changed
      body(trainer, world);
    }
    timeline.gather(world);
    if (last) run_on_rank_zero(world, last);
  });
}

/// Makes an exception from a function of the program around the run end the run as the program's mistake.
template <class Call>
void blame_program(const char* name, Call& call) {
  if (!call) return;
  call = [name, call](auto&&... given) {
    try {
      return call(given...);
    } catch (const std::exception& error) {
      if (dynamic_cast<const Error*>(&error) != nullptr) throw;
      fail(ExitCode::usage, "the program's {} threw: {}", name, error.what());
    }
  };
}

}  // namespace

std::vector<std::string> inputs_of(const TrainOptions& options) {
  const Config& config = options.config;
  std::vector<std::string> inputs{options.start.resume_path, options.start.init_from, config.model.from};
  std::vector<std::string> data{config.data.validation};
  for (const DataSource& source : config.data.train) data.push_back(source.path);
  for (const std::string& path : data) {
    if (!path.empty()) inputs.insert(inputs.end(), {path, manifest_path(path)});
  }
  return inputs;
}

Run prepare_run(const TrainOptions& given, const Log& log, const Launcher& launcher) {
  check_definition(given.model);
  TrainOptions options = given;
  options.config = checked_config(given.config, use_of(given), rule_of(given.model));
  const Config& config = options.config;
  if (options.output.empty()) fail(ExitCode::usage, "TrainOptions::output is empty: it names the folder of the run");
  if (options.stop_after < 0) {
    fail(ExitCode::usage, "a run cannot stop after step {}; give a step, or 0 for training.steps", options.stop_after);
  }
  if (config.metrics.tensorboard) {
    fail(ExitCode::usage,
         "metrics.tensorboard: a run writes only metrics.jsonl; set it to false, and make TensorBoard's events from "
         "that file, also during the run, with the program in docs/metrics.md");
  }
  launcher.check(launch_options(config.mesh));
  check_ring(config);
  const RunFolder folder(options.output);
  options.trace.inputs.push_back(options.output);
  std::ranges::move(inputs_of(options), std::back_inserter(options.trace.inputs));
  const FolderContent content = check_outputs(options, folder, log, launcher);  // before data is hashed
  Corpus corpus = open_training_corpus(config, options.open_tokens);
  options.config.data.longer = corpus.longer;
  RunSteps steps{.config = config,
                 .stages = configs_of_stages(config),
                 .samplers = samplers_of(corpus, config),
                 .dump = options.dump};
  log_windows(corpus, steps, log);
  for (const std::string& remark : schedule_remarks(config.lr_scheduler, config.training.steps)) log(remark);
  if (config.mesh.share_gpu) log("mesh.share_gpu: ranks take turns on a GPU: for checking, not for speed");
  Run run{std::move(steps), std::move(corpus), folder, options.model};
  run.evaluation = choose_evaluation(config, run.corpus, log);
  run.start = start_of(run, options, content, log);
  run.last_step = options.stop_after > 0 ? std::min(options.stop_after, config.training.steps) : config.training.steps;
  run.empty_steps = foresee_empty_steps(run, log);
  run.table = options.model.table(config);
  run.trace = options.trace;
  run.callbacks = options.callbacks;
  blame_program("callbacks.step", run.callbacks.step);
  blame_program("callbacks.evaluation", run.callbacks.evaluation);
  blame_program("callbacks.checkpoint", run.callbacks.checkpoint);
  blame_program("callbacks.stop", run.callbacks.stop);
  run.build = options.build;
  run.ranks = launcher.description();
  return run;
}

std::string dry_run_report(const Run& run, const Launcher& launcher) {
  const std::vector<RankPlan> plans = plans_of(run);
  const LocalRanks ranks = local_ranks(run.config.mesh, launcher);
  const CheckpointSpace space = checkpoint_space(run);
  const bool fits = !caught([&] { check_memory(run.config, plans, ranks); });
  return start_text(run, plans, space) +
         fmt::format("\nmemory: it {}; the command plan predicts the time\n", fits ? "fits" : "does not fit") +
         available_text(run.config, ranks) + space_text(space) +
         fmt::format("parameters: {} ({}) in {} tensors\n", run.table.count(), human_count(run.table.count()),
                     run.table.all().size()) +
         data_report(run) + mesh_report(run.stages[longest_stage(run.config.training)], launcher) +
         memory_report(plans) + "\n" + to_yaml(run.config);
}

void check_plan_memory(const Run& run, const Launcher& launcher) {
  check_memory(run.config, plans_of(run), local_ranks(run.config.mesh, launcher));
}

ExitCode train(const Run& run, const Log& log, Launcher& launcher) {
  const std::vector<RankPlan> plans = plans_of(run);
  check_memory(run.config, plans, local_ranks(run.config.mesh, launcher));
  if (is_finished(run)) {
    log(start_text(run, plans, {}));
    if (launcher.is_rank_zero()) sweep(run.folder, log);
    return ExitCode::done;
  }
  if (launcher.is_rank_zero()) {
    const CheckpointSpace space = checkpoint_space(run);
    check_space(space, log);
    log(start_text(run, plans, space));
  }
  TraceFile timeline(run, launcher, log);
  std::optional<SignalGuard> guard;
  if (!SignalGuard::lives()) guard.emplace();
  if (launcher.is_rank_zero()) {
    announce_signals({.program = "train",
                      .first = "ending before the first step: there is nothing to save yet",
                      .second = "ended immediately"});
  }
  std::atomic<ExitCode> result{ExitCode::done};
  FileLock lock, dump_lock;  // rank 0's, until all ranks have ended
  on_ranks(
      run, log, launcher, timeline, [&] { lock = run.folder.lock(log); },
      [&](RankTrainer& trainer, Communicator& world) {
        run_on_rank_zero(world, [&] {
          trainer.remember(begin_folder(run, log));
          if (!run.dump.folder.empty()) dump_lock = begin_dump(run);
        });
        release_source(run, world, launcher);  // a base has been kept by now
        const ExitCode code = trainer.train();
        if (world.rank() == launcher.process()) result = code;
      });
  if (result == ExitCode::done) timeline.finish();
  return result;
}

StepResult dumped_step(const Run& run, const Log& log, Launcher& launcher,
                       const std::function<void(const StepResult&)>& look) {
  check_plan_memory(run, launcher);
  TraceFile timeline(run, launcher, log);
  StepResult result;
  FileLock lock;
  on_ranks(
      run, log, launcher, timeline, [&] { lock = begin_dump(run); },
      [&](RankTrainer& trainer, Communicator& world) {
        release_source(run, world, launcher);
        const StepResult of_rank = trainer.steps_until(run.dump.step);
        if (world.rank() == launcher.process()) result = of_rank;
      },
      [&] {
        lock = {};
        if (look) look(result);
      });
  timeline.finish();
  return result;
}

ExitCode train(const Run& run, const Log& log) {
  Launcher threads;
  return train(run, log, threads);
}

}  // namespace ringtrain
