#include "train/trainer.h"

#include <algorithm>
#include <atomic>

#include "framework/error.h"
#include "framework/progress.h"
#include "framework/signals.h"
#include "parallel/launch.h"
#include "train/memory_report.h"
#include "train/metrics.h"
#include "train/rank_trainer.h"
#include "train/system_memory.h"
#include "train/trace_file.h"

namespace ringtrain {

namespace {

int ranks_of(const Config& config) {
  return static_cast<int>(config.mesh.data * config.mesh.sequence);
}

/// A rank without a token is legal for a kernel, but nobody wants it: refuse a ring longer than its sequences.
void check_ring(const Config& config) {
  const std::int64_t ring = config.mesh.sequence;
  if (ring > config.training.seq_len) {
    fail(ExitCode::usage, "mesh.sequence = {} is more than training.seq_len = {}: some ranks would hold no token", ring,
         config.training.seq_len);
  }
  if (config.evaluation.interval > 0 && ring > config.evaluation.context_lengths.front()) {
    fail(ExitCode::usage,
         "mesh.sequence = {} is more than the shortest of evaluation.context_lengths, {}: some ranks would hold no "
         "token",
         ring, config.evaluation.context_lengths.front());
  }
}

Sampler make_sampler(const Corpus& corpus, const Config& config, const Note& note) {
  std::vector<std::int64_t> windows;
  for (const auto& file : corpus.files) {
    std::int64_t dropped = 0;
    windows.push_back(window_count(*file, config.training.seq_len, &dropped));
    note(
        fmt::format("{}: {} windows of {} tokens; the last {} tokens of its training part fill no window and are never "
                    "seen",
                    file->path(), windows.back(), config.training.seq_len, dropped));
  }
  return Sampler(std::move(windows), corpus.weights, config.training.seed);
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

std::string mesh_report(const Config& config) {
  const Mesh mesh{static_cast<int>(config.mesh.data), static_cast<int>(config.mesh.sequence)};
  std::string text = fmt::format(
      "mesh: {} data x {} sequence = {} ranks, threads of one process; {} compute threads a rank; layout {}\n",
      mesh.data, mesh.sequence, mesh.size(), threads_per_rank(config.mesh.threads_per_rank, mesh.size()),
      name_of(config.mesh.layout));
  for (int rank = 0; rank < mesh.size(); ++rank) {
    const SegmentList segments =
        shard_segments(config.mesh.layout, config.training.seq_len, mesh.sequence, mesh.sequence_index(rank));
    text += fmt::format("  rank {}: data {}, sequence {}: {} of {} positions: {}\n", rank, mesh.data_index(rank),
                        mesh.sequence_index(rank), token_count(segments), config.training.seq_len,
                        positions_text(segments));
  }
  return text;
}

std::string data_report(const Run& run) {
  const TrainingConfig& training = run.config.training;
  const std::int64_t sequences = training.steps * training.global_batch_size;
  std::string text = fmt::format(
      "data: {} windows of {} tokens, hash {}; {} steps of {} sequences are {:.2f} epochs, {} tokens\n",
      run.sampler.windows(), training.seq_len, run.data_hash, training.steps, training.global_batch_size,
      static_cast<double>(sequences) / static_cast<double>(run.sampler.windows()), sequences * training.seq_len);
  if (run.targets) {
    text += fmt::format("evaluation: {} blocks of {} tokens from {} documents, hash {}\n", run.targets->blocks.size(),
                        run.evaluation.target_tokens, run.targets->documents, run.targets->hash);
  }
  return text;
}

}  // namespace

Run prepare_run(const TrainOptions& options, const Note& note) {
  const Config& config = options.config;
  check_ring(config);
  const RunFolder folder(options.output);
  folder.check_writable();
  if (!options.trace.path.empty()) Trace::check_path(options.trace.path);
  if (folder.holds_run() && !options.start.resume) {  // before the data is hashed: it may take long
    fail(ExitCode::usage, "{}: already holds a run; continue it with --resume, or choose another --output",
         folder.path());
  }
  Corpus corpus = open_corpus(config.data, config.model.vocab_size);
  std::string hash = corpus.hash();
  Sampler sampler = make_sampler(corpus, config, note);
  EvaluationRequest request{config.evaluation.context_lengths, config.evaluation.target_tokens,
                            config.evaluation.target_blocks};
  std::optional<EvaluationTargets> targets;
  if (config.evaluation.interval > 0) {
    check_request(request, "evaluation");
    targets = choose_targets(corpus.validation(), request);
  }
  RunStart start = choose_start(options.start, folder, config, hash, note);
  const std::int64_t last =
      options.stop_after > 0 ? std::min(options.stop_after, config.training.steps) : config.training.steps;
  return {.config = config,
          .table = make_parameter_table(config.model),
          .corpus = std::move(corpus),
          .data_hash = std::move(hash),
          .sampler = std::move(sampler),
          .evaluation = std::move(request),
          .targets = std::move(targets),
          .folder = folder,
          .checkpoints = CheckpointFolder(folder.checkpoints_path()),
          .start = std::move(start),
          .last_step = last,
          .trace = options.trace};
}

std::string dry_run_report(const Run& run) {
  const std::vector<RankPlan> plans = plan_ranks(run.config, run.table, training_purpose(run.config));
  const std::int64_t available = available_memory();
  std::string text = to_yaml(run.config) + "\n";
  text += fmt::format("parameters: {} ({}) in {} tensors\n", run.table.count(),
                      human_count(static_cast<double>(run.table.count())), run.table.all().size());
  text += data_report(run) + mesh_report(run.config) + memory_report(plans);
  text += fmt::format("available: {} bytes, {}\n", available, human_bytes(static_cast<double>(available)));
  return text;
}

void require_fitting_plan(const Run& run) {
  require_memory(plan_ranks(run.config, run.table, training_purpose(run.config)), available_memory());
}

ExitCode train(const Run& run, const Note& note) {
  require_fitting_plan(run);
  if (run.start.step >= run.last_step) {
    note(fmt::format("step {} is done already, and the run ends after step {}: nothing to do", run.start.step,
                     run.last_step));
    return ExitCode::done;
  }
  run.folder.begin(run.config);
  run.checkpoints.continue_from(run.start.step, note);
  if (const std::int64_t cut = cut_metrics(run.folder.metrics_path(), run.start.step); cut > 0) {
    note(fmt::format("{}: cut {} bytes of steps after {}, which this run makes again", run.folder.metrics_path(), cut,
                     run.start.step));
  }
  TraceFile timeline(run, note);
  const SignalGuard guard;
  std::atomic<ExitCode> result{ExitCode::done};
  const LaunchOptions options{ranks_of(run.config), run.config.mesh.timeout_seconds};
  launch_threads(options, [&](Communicator& world) {
    ThreadPool pool(threads_per_rank(run.config.mesh.threads_per_rank, world.size()));
    const ExitCode code = RankTrainer(run, world, pool, timeline.rank(world.rank())).train();
    if (world.rank() == 0) result = code;
  });
  return result;
}

}  // namespace ringtrain
