#include "train/run/run_folder.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iterator>
#include <sstream>
#include <thread>

#include "framework/config/read_config.h"
#include "framework/error.h"
#include "layers/check_model.h"
#include "train/models/adapters/kept_base.h"
#include "train/models/adapters/peft_folder.h"
#include "train/models/hugging_face_config.h"
#include "train/models/model_source.h"

namespace ringtrain {

namespace {

namespace fs = std::filesystem;

/// Adds the files of a folder, and of the folders in it down to a depth. Skips what cannot be listed.
void add_files(const std::string& folder, std::vector<std::string>& files, int depth = 0) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code unknown;
    if (entry->is_regular_file(unknown)) files.push_back(entry->path().string());
    if (depth > 0 && entry->is_directory(unknown)) add_files(entry->path().string(), files, depth - 1);
  }
}

/// Returns whether a text has the form of to_yaml(), in which each key's line ends with the key's meaning. A person's
/// config does not.
bool is_resolved_config(const std::string& text) {
  bool has_key = false;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with(':')) continue;  // a section
    const std::size_t comment = line.find("  # ");
    if (comment == std::string::npos || line.find(':') > comment) return false;
    has_key = true;
  }
  return has_key && text.ends_with('\n');
}

/// Returns the config of the run at `run`, if it has one that this version can read. Throws if there is a config.yaml
/// that does not belong to a run: before a run writes one, it makes the lock.
std::optional<Config> read_resolved(const RunFolder& run) {
  const std::string path = run.config_path();
  if (!path_exists(path)) return std::nullopt;
  const std::string text = read_file(path, ExitCode::usage);
  const bool is_run_folder =
      path_exists(run.lock_path()) || path_exists(run.metrics_path()) || path_exists(run.checkpoints_path());
  if (!is_run_folder || !is_resolved_config(text)) {
    fail(ExitCode::usage, "{}: was not written by a run, and would be overwritten; choose another --output", path);
  }
  try {
    return parse_config(text, path, {}, ConfigUse::know, check_model);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

std::vector<std::string> files_of_model(const std::string& path) {
  if (!is_directory(path)) return {path};
  std::vector<std::string> files;
  const bool is_checkpoint = path_exists(path + "/manifest.json");
  if (is_checkpoint) add_files(path, files);
  const std::string above = parent_directory(path);
  const RunFolder run(is_checkpoint && file_name(above) == "checkpoints" ? parent_directory(above) : path);
  for (const std::string& file : {run.config_path(), run.metrics_path(), run.lock_path()}) {
    if (path_exists(file)) files.push_back(file);
  }
  add_files(ModelSource::tokenizer_folder(run.path()), files);
  for (const std::string& folder : {run.checkpoints_path(), parent_directory(kept_base_path(run.path(), "base"))}) {
    add_files(folder, files, /*depth=*/1);
  }
  if (is_hugging_face_folder(path) || is_peft_folder(path)) add_files(path, files);
  return files;
}

std::vector<std::string> files_of_models(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    if (!path.empty()) std::ranges::move(files_of_model(path), std::back_inserter(files));
  }
  return files;
}

std::string FolderContent::mark() const {
  return fmt::format("{} and {} bytes", fmt::join(checkpoints, ", "), metrics.bytes());
}

FolderContent RunFolder::look() const {
  FolderContent content;
  content.checkpoints = checkpoints().steps();
  content.says_nothing_saved = checkpoints().says_nothing_saved();
  content.config = read_resolved(*this);
  content.metrics = MetricsHistory::read(metrics_path());
  if (content.metrics.is_foreign()) {
    fail(ExitCode::usage, "{}: does not contain metrics of a run, but would be appended to; choose another --output",
         metrics_path());
  }
  return content;
}

void RunFolder::check_writable() const {
  ringtrain::check_writable(nearest_existing(path_), ExitCode::usage);
}

FileLock RunFolder::lock(const Log& log) const {
  make_directories(path_, ExitCode::usage);
  FileLock lock = FileLock::acquire(lock_path(), under_way(), ExitCode::usage);
  if (!lock.is_exclusive()) {
    log(
        fmt::format("warning: {}: this file system has no locks, so nothing keeps a second run out of this folder; "
                    "make sure that there is none",
                    path_));
  }
  return lock;
}

void RunFolder::wait_for_lock() const {
  constexpr std::chrono::milliseconds patience(4000), pause(50);
  const auto begun = std::chrono::steady_clock::now();
  while (path_exists(lock_path()) && !File::peek(lock_path(), ExitCode::usage).try_share()) {
    if (std::chrono::steady_clock::now() - begun > patience) {
      FileLock::acquire(lock_path(), under_way(), ExitCode::usage);
      return;
    }
    std::this_thread::sleep_for(pause);
  }
}

void RunFolder::begin(const Config& config) const {
  make_directories(checkpoints_path(), ExitCode::usage);
  ringtrain::check_writable(checkpoints_path(), ExitCode::usage);
  if (checkpoints().steps().empty()) checkpoints().say_nothing_saved();     // before there are metrics
  for (const std::string& name : list_directory(path_, ExitCode::usage)) {  // from a start that was killed
    const std::optional<UniqueName> parts = parse_unique_name(name, "partial");
    const bool ours = parts && (parts->base == file_name(config_path()) || parts->base == file_name(metrics_path()));
    if (ours) remove_tree(path_ + "/" + name, ExitCode::usage);
  }
  write_file(config_path(), to_yaml(config), ExitCode::usage);
}

}  // namespace ringtrain
