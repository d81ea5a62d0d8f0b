#include "train/checkpoint/checkpoint_folder.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "framework/config/read_config.h"
#include "framework/error.h"
#include "framework/storage/files.h"
#include "layers/model_spec.h"

namespace ringtrain {

namespace {

constexpr std::string_view prefix = "step-", partial_kind = "partial", deleted_kind = "deleted";

/// Return the step of a complete checkpoint's name.
std::optional<std::int64_t> step_of(std::string_view name) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  std::int64_t step = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), step);
  if (name.size() < 8 || error != std::errc{} || end != name.data() + name.size() || step < 0) return std::nullopt;
  return step;
}

/// Return whether a name is that of a checkpoint which was being written or deleted.
bool is_half(std::string_view name) {
  const auto parts = parse_unique_name(name, partial_kind), other = parse_unique_name(name, deleted_kind);
  return (parts && step_of(parts->base)) || (other && step_of(other->base));
}

}  // namespace

Checkpoint open_checkpoint(const std::string& path) {
  std::string folder = path;
  if (is_directory(path + "/checkpoints") && !path_exists(path + "/manifest.json")) {
    const CheckpointFolder checkpoints(path + "/checkpoints");
    const auto steps = checkpoints.steps();
    if (steps.empty()) fail(ExitCode::checkpoint, "{}: this run has no checkpoint yet", path);
    folder = checkpoints.complete(steps.back());
  }
  Checkpoint checkpoint{folder, verify_checkpoint(folder), {}};
  try {
    checkpoint.config = read_config(folder + "/config.yaml", {}, ConfigUse::know, check_model);
  } catch (const Error& error) {
    fail(ExitCode::checkpoint, "{}: its config cannot be used: {}", folder, error.what());
  }
  return checkpoint;
}

std::string CheckpointFolder::complete(std::int64_t step) const {
  return fmt::format("{}/{}{:08}", path_, prefix, step);
}

std::vector<std::int64_t> CheckpointFolder::steps() const {
  std::vector<std::int64_t> steps;
  if (!is_directory(path_)) return steps;
  for (const std::string& name : list_directory(path_, ExitCode::checkpoint)) {
    if (const auto step = step_of(name)) steps.push_back(*step);
  }
  std::sort(steps.begin(), steps.end());
  return steps;
}

std::string CheckpointFolder::newest_intact(const Warn& warn) const {
  const auto all = steps();
  std::string last_problem;
  for (auto step = all.rbegin(); step != all.rend(); ++step) {
    try {
      verify_checkpoint(complete(*step));
      return complete(*step);
    } catch (const Error& error) {
      last_problem = error.what();
      warn(fmt::format("{}; trying the one before it", last_problem));
    }
  }
  if (!all.empty()) {
    fail(ExitCode::checkpoint,
         "{}: none of the {} checkpoints is intact ({}); to start afresh, choose another --output", path_, all.size(),
         last_problem);
  }
  return "";
}

void CheckpointFolder::continue_from(std::int64_t step, const Warn& warn) const {
  make_directories(path_, ExitCode::usage);
  for (const std::string& name : list_directory(path_, ExitCode::checkpoint)) {
    if (is_half(name) || is_probe(name)) remove_tree(path_ + "/" + name, ExitCode::checkpoint);
  }
  for (const std::int64_t later : steps()) {
    if (later <= step) continue;
    std::string to;
    move_aside(later, &to);
    warn(fmt::format("{}: is later than step {}, from which this run goes on; moved to {}", complete(later), step,
                     file_name(to)));
  }
}

/// Renames a complete checkpoint to a name that is free. to: where that is told.
void CheckpointFolder::move_aside(std::int64_t step, std::string* to) const {
  std::string free = complete(step) + ".superseded";
  for (int i = 2; path_exists(free); ++i) free = fmt::format("{}.superseded-{}", complete(step), i);
  rename_path(complete(step), free, ExitCode::checkpoint);
  if (to) *to = free;
}

std::string CheckpointFolder::make_partial(std::int64_t step) const {
  return make_unique_directory(complete(step), partial_kind, ExitCode::checkpoint);
}

void CheckpointFolder::publish(std::int64_t step, const std::string& partial) const {
  if (path_exists(complete(step))) move_aside(step);  // someone put it there since this run began
  rename_path(partial, complete(step), ExitCode::checkpoint);
}

void CheckpointFolder::prune(std::int64_t keep, const Warn& warn) const {
  const auto all = steps();
  for (std::size_t i = 0; i + static_cast<std::size_t>(keep) < all.size(); ++i) {
    try {
      const std::string deleted = unique_name(complete(all[i]), deleted_kind);
      rename_path(complete(all[i]), deleted, ExitCode::checkpoint);  // from here on it is none
      remove_tree(deleted, ExitCode::checkpoint);
    } catch (const Error& error) {
      warn(fmt::format("an old checkpoint could not be deleted: {}", error.what()));
    }
  }
}

}  // namespace ringtrain
