#include "train/step/checkpoint_saver.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <future>
#include <new>
#include <utility>
#include <vector>

#include "framework/config/read_config.h"
#include "framework/copy_stream.h"
#include "framework/profile/clock.h"
#include "framework/profile/progress.h"
#include "framework/storage/files.h"
#include "framework/storage/hdf5_datasets.h"
#include "framework/system/run_aside.h"
#include "parallel/collectives.h"
#include "parallel/shared_error.h"
#include "train/checkpoint/checkpoint.h"
#include "train/engine/rank_state.h"
#include "train/models/adapters/kept_base.h"
#include "train/run/run.h"

namespace ringtrain {

namespace {

constexpr double unnoticed = 0.05;  // waiting times up to this many seconds are not logged

/// Runs work. Returns what it throws.
std::optional<Error> problem_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return Error(ExitCode::checkpoint, "cannot save: out of memory; free some, or raise ulimit -v");
  } catch (const std::exception& error) {
    return Error(ExitCode::internal, fmt::format("internal error: while saving: {}", error.what()));
  }
  return std::nullopt;
}

}  // namespace

/// A pending save.
struct CheckpointSaver::Save {
  CheckpointManifest manifest;
  std::string partial;                      // its folder
  bool publishing = false;                  // all ranks have written
  CopyStream::Event snapshot_taken;         // the writing thread waits for it, and so does the next update
  std::array<CheckpointFile, 2> own_files;  // state and list
  std::vector<std::string> prune_logs;
  double seconds = 0;                      // snapshot and the slowest rank's writing
  double work_seconds = 0;                 // of this rank's thread; valid when it has ended
  std::future<std::optional<Error>> work;  // constructed last, destroyed first: its thread uses all members above
};

CheckpointSaver::CheckpointSaver(RankState& state, const Run& run, std::function<void()> prepare, Progress* progress)
    : state_(state),
      run_(run),
      prepare_(std::move(prepare)),
      progress_(progress),
      snapshots_(std::make_unique<CopyStream>()) {
  snapshots_->set_stream(state_.stream);
}

CheckpointSaver::~CheckpointSaver() = default;  // the future waits for its thread

void CheckpointSaver::let_snapshot_end() const {
  if (save_) snapshots_->wait(save_->snapshot_taken);
}

double CheckpointSaver::unfinished() const {
  return save_ && save_->work.wait_for(std::chrono::seconds(0)) != std::future_status::ready ? 1 : 0;
}

double CheckpointSaver::due() const {
  const CheckpointConfig& config = run_.config.checkpoint;
  const bool by_time = state_.rank == 0 && config.every_minutes > 0 && config.interval >= 0;
  return by_time && seconds_since(last_begun_) >= 60 * config.every_minutes ? 1 : 0;
}

void CheckpointSaver::start(std::function<void(Save&)> work) {
  save_->work = run_aside([save = save_.get(), work = std::move(work)] {
    const auto begun = std::chrono::steady_clock::now();
    std::optional<Error> problem = problem_of([&] { work(*save); });
    save->work_seconds = seconds_since(begun);
    return problem;
  });
}

void CheckpointSaver::begin(const CheckpointManifest& manifest) {
  if (save_) {
    const auto start = std::chrono::steady_clock::now();
    const std::int64_t before = save_->manifest.step;
    finish();
    const double waited = seconds_since(start);
    if (state_.rank == 0 && waited > unnoticed) {
      progress_->log(fmt::format("step {} waited {:.2f} s for the save of step {}; use a larger checkpoint.interval",
                                 manifest.step, waited, before));
    }
  }
  last_begun_ = std::chrono::steady_clock::now();
  auto save = std::make_unique<Save>();
  save->manifest = manifest;
  save->manifest.ranks = state_.mesh.size();
  save->manifest.files.clear();
  std::optional<Error> problem;
  if (state_.rank == 0) {
    problem = problem_of([&] {
      prepare_();
      save->partial = run_.folder.checkpoints().make_partial(manifest.step);
    });
  }
  if (failed_anywhere(problem, *save)) return;
  save->partial = run_.folder.checkpoints_path() + "/" +
                  broadcast_text(*state_.world, file_name(save->partial), 0, {"name of a save's folder"});
  save->snapshot_taken = state_.snapshot[0].empty() ? snapshots_->record() : take_snapshot(state_, *snapshots_);
  save->seconds = seconds_since(last_begun_);
  save_ = std::move(save);
  start([this](Save& pending) {
    synchronize(pending.snapshot_taken);
    pending.own_files = write_state(state_, pending.partial, pending.manifest.step);
  });
  if (state_.snapshot[0].empty()) finish();
}

void CheckpointSaver::advance(double unfinished) {
  if (!save_ || unfinished > 0) return;
  if (failed_anywhere(save_->work.get(), *save_)) return;
  if (!save_->publishing) {
    gather_files();
    save_->publishing = true;
    start([this](Save& pending) {
      if (state_.rank == 0) publish(pending);
    });
  } else {
    const std::unique_ptr<Save> saved = std::move(save_);
    saved_step_ = saved->manifest.step;
    if (state_.rank == 0) announce(*saved);
  }
}

std::string CheckpointSaver::what_is_saved() const {
  const std::int64_t step = saved_step_ > 0 ? saved_step_ : run_.start.step;
  return step > 0 ? fmt::format("the last checkpoint, of step {}, is intact", step) : "nothing was saved yet";
}

void CheckpointSaver::finish() {
  while (save_) {
    save_->work.wait_for(std::chrono::milliseconds(200));
    std::int64_t busy = unfinished() > 0 ? 1 : 0;
    all_reduce_max(*state_.world, {&busy, 1}, {"waiting for a save"});
    advance(static_cast<double>(busy));
  }
}

void CheckpointSaver::save_last(const CheckpointManifest& manifest) {
  finish();
  last_ = true;
  begin(manifest);
  finish();
}

/// Collective. Returns whether any rank has a problem. If so, reports or throws it and removes the partial folder.
bool CheckpointSaver::failed_anywhere(const std::optional<Error>& local_problem, const Save& save) {
  const std::optional<SharedError> problem = shared_error(*state_.world, local_problem, {"outcome of a save"});
  if (!problem) return false;
  const std::unique_ptr<Save> ended = std::move(save_);  // no save is pending from here on
  if (state_.rank == 0) {
    // Report the first problem; the next resume sweeps what cannot be removed now.
    problem_of([&] {
      if (!save.partial.empty()) remove_tree(save.partial, ExitCode::checkpoint);
    });
  }
  state_.world->barrier({"end of a failed save"});  // nobody ends the run before the folder is gone
  if (problem->code() == ExitCode::numeric) {
    const bool updated = save.manifest.step > save.manifest.skipped_steps;  // otherwise no learning rate has been used
    throw Error(ExitCode::numeric,
                fmt::format("{}; {}{}", problem->what(), what_is_saved(), updated ? "; lower optimizer.lr" : ""));
  }
  if (last_ || problem->code() != ExitCode::checkpoint || run_.config.checkpoint.on_failure == OnFailure::stop) {
    throw Error(*problem);
  }
  if (state_.rank == 0) {
    progress_->log(
        fmt::format("warning: the save of step {} failed; training continues (checkpoint.on_failure: warn): {}",
                    save.manifest.step, problem->what()));
  }
  return true;
}

/// Collective. Lists every rank's files in the manifest.
void CheckpointSaver::gather_files() {
  std::vector<std::int64_t> own_entry{std::llround(save_->work_seconds * 1e9)};
  for (const CheckpointFile& file : save_->own_files) {
    own_entry.push_back(file.bytes);
    for (const std::size_t half : {0U, 16U}) {
      own_entry.push_back(static_cast<std::int64_t>(std::stoull(file.hash.substr(half, 16), nullptr, 16)));
    }
  }
  const std::vector<std::int64_t> all = all_gather(*state_.world, own_entry, {"files of a checkpoint"});
  const int ranks = state_.mesh.size();
  std::int64_t slowest = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::int64_t* entry = all.data() + own_entry.size() * static_cast<std::size_t>(rank);
    slowest = std::max(slowest, *entry++);
    const std::string state = state_file_name(rank, ranks);
    for (const std::string& name : {state, dataset_list_path(state)}) {
      save_->manifest.files.push_back(
          {name, entry[0],
           fmt::format("{:016x}{:016x}", static_cast<std::uint64_t>(entry[1]), static_cast<std::uint64_t>(entry[2]))});
      entry += 3;
    }
  }
  save_->seconds += 1e-9 * static_cast<double>(slowest);
}

/// Runs on rank 0, in its thread: turns the files into a checkpoint.
void CheckpointSaver::publish(Save& save) {
  // A checkpoint must never be ahead of the metrics.
  File::open(run_.folder.metrics_path(), ExitCode::checkpoint).sync();
  const CheckpointFolder checkpoints = run_.folder.checkpoints();
  CheckpointManifest& manifest = save.manifest;
  const std::string& partial = save.partial;
  write_new_file(partial + "/" + config_file_name, to_yaml(run_.config), ExitCode::checkpoint);
  manifest.files.push_back(describe_file(partial, config_file_name));
  write_new_file(partial + "/manifest.json", to_json(manifest), ExitCode::checkpoint);
  sync_directory(partial, ExitCode::checkpoint);
  checkpoints.publish(manifest.step, partial);
  checkpoints.prune(run_.config.checkpoint.keep, manifest, reported_,
                    [&](const std::string& line) { save.prune_logs.push_back(line); });
}

void CheckpointSaver::announce(const Save& save) {
  last_seconds_ = save.seconds + save.work_seconds;  // the latter for publishing
  const std::string path = run_.folder.checkpoints().complete(save.manifest.step);
  progress_->log(fmt::format("saved {} in {:.2f} s", path, last_seconds_));
  for (const std::string& line : save.prune_logs) progress_->log(line);
  if (save.manifest.base) {
    if (const auto warning = base_warning(*save.manifest.base, run_.folder.path())) progress_->log(*warning);
  }
  if (run_.callbacks.checkpoint) progress_->above([&] { run_.callbacks.checkpoint(save.manifest.step, path); });
}

}  // namespace ringtrain
