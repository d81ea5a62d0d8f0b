#include "train/step/checkpoint_saver.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <new>
#include <utility>

#include "framework/config/read_config.h"
#include "framework/profile/clock.h"
#include "framework/storage/files.h"
#include "framework/system/run_aside.h"
#include "parallel/collectives.h"
#include "parallel/shared_error.h"
#include "train/models/adapters/kept_base.h"

namespace ringtrain {

namespace {

constexpr double unnoticed = 0.05;  // seconds of waiting that are not told

/// Runs work. Returns what it throws.
std::optional<Error> problem_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return Error(ExitCode::checkpoint, "cannot save: there is no more memory, or ulimit -v leaves none");
  } catch (const std::exception& error) {
    return Error(ExitCode::internal, fmt::format("internal error: while saving: {}", error.what()));
  }
  return std::nullopt;
}

/// Collective. Returns rank 0's name of a file on every rank.
std::string name_of_rank_zero(Communicator& world, const std::string& own) {
  std::array<char, 256> text{};  // NAME_MAX and an end
  if (world.rank() == 0) own.copy(text.data(), text.size() - 1);
  broadcast(world, host_view(reinterpret_cast<std::uint8_t*>(text.data()), {std::ssize(text)}), 0,
            {"name of a save's folder"});
  return text.data();
}

/// Writes a file that nobody looks for before its folder has its name.
void write_and_sync(const std::string& path, const std::string& content) {
  File file = File::create(path, ExitCode::checkpoint);
  file.write(content);
  file.sync();
  file.close();
}

}  // namespace

CheckpointSaver::CheckpointSaver(RankState& state, const Run& run, std::function<void()> prepare, Log log)
    : state_(state), run_(run), prepare_(std::move(prepare)), log_(std::move(log)) {
  snapshots_.set_stream(state_.stream);
}

CheckpointSaver::~CheckpointSaver() = default;  // the future waits for its thread

double CheckpointSaver::unfinished() const {
  return work_.valid() && work_.wait_for(std::chrono::seconds(0)) != std::future_status::ready ? 1 : 0;
}

void CheckpointSaver::start(std::function<void()> work) {
  work_ = run_aside([this, work = std::move(work)] {
    const auto begun = std::chrono::steady_clock::now();
    std::optional<Error> problem = problem_of(work);
    work_seconds_ = seconds_since(begun);
    return problem;
  });
}

void CheckpointSaver::begin(const CheckpointManifest& manifest) {
  if (phase_ != Phase::idle) {
    const auto start = std::chrono::steady_clock::now();
    const std::int64_t before = manifest_.step;
    finish();
    const double waited = seconds_since(start);
    if (state_.rank == 0 && waited > unnoticed) {
      log_(
          fmt::format("step {} waited {:.2f} s for the save of step {}, which was still under way; saves come "
                      "faster than the disk takes them: consider a larger checkpoint.interval",
                      manifest.step, waited, before));
    }
  }
  manifest_ = manifest;
  manifest_.ranks = state_.mesh.size();
  manifest_.files.clear();
  const auto begun = std::chrono::steady_clock::now();
  partial_.clear();
  std::optional<Error> problem;
  if (state_.rank == 0) {
    problem = problem_of([&] {
      prepare_();
      partial_ = run_.checkpoints.make_partial(manifest_.step);
    });
  }
  if (failed_anywhere(problem)) return;
  partial_ = run_.checkpoints.path() + "/" + name_of_rank_zero(*state_.world, file_name(partial_));
  phase_ = Phase::writing;
  snapshot_taken_ = state_.snapshot.empty() ? snapshots_.record() : take_snapshot(state_, snapshots_);
  seconds_ = seconds_since(begun);
  start([this] {
    CopyStream::synchronize(snapshot_taken_);
    own_files_ = write_state(state_, partial_, manifest_.step);
  });
  if (state_.snapshot.empty()) finish();
}

void CheckpointSaver::advance(double unfinished) {
  if (phase_ == Phase::idle || unfinished > 0) return;
  if (failed_anywhere(work_.get())) return;
  if (phase_ == Phase::writing) {
    gather_files();
    phase_ = Phase::publishing;
    start([this] {
      if (state_.rank == 0) publish();
    });
  } else {
    phase_ = Phase::idle;
    saved_step_ = manifest_.step;
    if (state_.rank == 0) announce();
  }
}

std::string CheckpointSaver::what_is_saved() const {
  const bool resumed = run_.start.source && !run_.start.weights_only;
  const std::int64_t step = saved_step_ > 0 ? saved_step_ : resumed ? run_.start.step : 0;
  return step > 0 ? fmt::format("the last checkpoint, of step {}, is intact", step) : "nothing was saved yet";
}

void CheckpointSaver::finish() {
  while (phase_ != Phase::idle) {
    work_.wait_for(std::chrono::milliseconds(200));
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

/// Collective. Returns whether any rank has a problem, which then is told or thrown, and the partial folder removed.
bool CheckpointSaver::failed_anywhere(const std::optional<Error>& own) {
  const std::optional<SharedError> problem = shared_error(*state_.world, own, {"outcome of a save"});
  if (!problem) return false;
  phase_ = Phase::idle;
  if (state_.rank == 0) {
    // The first problem is the one to tell; what cannot be removed now is swept by the next resume.
    problem_of([&] {
      if (!partial_.empty()) remove_tree(partial_, ExitCode::checkpoint);
    });
  }
  state_.world->barrier({"end of a failed save"});  // nobody ends the run before the folder is gone
  if (problem->code() == ExitCode::numeric) {
    const bool updated = manifest_.step > manifest_.skipped_steps;  // else no learning rate was ever used
    throw Error(ExitCode::numeric,
                fmt::format("{}; {}{}", problem->what(), what_is_saved(), updated ? "; lower optimizer.lr" : ""));
  }
  if (last_ || problem->code() != ExitCode::checkpoint || run_.config.checkpoint.on_failure == OnFailure::stop) {
    throw Error(*problem);
  }
  if (state_.rank == 0) {
    log_(fmt::format("warning: the save of step {} failed, and training goes on (checkpoint.on_failure: warn): {}",
                     manifest_.step, problem->what()));
  }
  return true;
}

/// Collective. Lists every rank's files in the manifest.
void CheckpointSaver::gather_files() {
  std::vector<std::int64_t> own{std::llround(work_seconds_ * 1e9)};
  for (const CheckpointFile& file : own_files_) {
    own.push_back(file.bytes);
    for (const std::size_t half : {0U, 16U}) {
      own.push_back(static_cast<std::int64_t>(std::stoull(file.hash.substr(half, 16), nullptr, 16)));
    }
  }
  const std::vector<std::int64_t> all = all_gather(*state_.world, own, {"files of a checkpoint"});
  const int ranks = state_.mesh.size();
  std::int64_t slowest = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const std::int64_t* entry = all.data() + own.size() * static_cast<std::size_t>(rank);
    slowest = std::max(slowest, *entry++);
    const std::string state = state_file_name(rank, ranks);
    for (const std::string& name : {state, dataset_list_path(state)}) {
      manifest_.files.push_back(
          {name, entry[0],
           fmt::format("{:016x}{:016x}", static_cast<std::uint64_t>(entry[1]), static_cast<std::uint64_t>(entry[2]))});
      entry += 3;
    }
  }
  seconds_ += 1e-9 * static_cast<double>(slowest);
}

/// Rank 0, on its thread: what makes the files a checkpoint.
void CheckpointSaver::publish() {
  // A checkpoint never knows more than the metrics do.
  File::open(run_.folder.metrics_path(), ExitCode::checkpoint).sync();
  write_and_sync(partial_ + "/" + config_file_name, to_yaml(run_.config));
  manifest_.files.push_back(describe_file(partial_, config_file_name));
  write_and_sync(partial_ + "/manifest.json", to_json(manifest_));
  sync_directory(partial_, ExitCode::checkpoint);
  run_.checkpoints.publish(manifest_.step, partial_);
  prune_logs_.clear();
  run_.checkpoints.prune(run_.config.checkpoint.keep, manifest_, left_alone_,
                         [this](const std::string& line) { prune_logs_.push_back(line); });
}

void CheckpointSaver::announce() {
  last_seconds_ = seconds_ + work_seconds_;  // the latter of publishing
  log_(fmt::format("saved {} in {:.2f} s", run_.checkpoints.complete(manifest_.step), last_seconds_));
  for (const std::string& line : prune_logs_) log_(line);
  if (manifest_.base) {
    if (const auto warning = base_warning(*manifest_.base, run_.folder.path())) log_(*warning);
  }
  if (run_.callbacks.checkpoint) run_.callbacks.checkpoint(manifest_.step, run_.checkpoints.complete(manifest_.step));
}

}  // namespace ringtrain
