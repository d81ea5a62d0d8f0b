#include "train/run_folder.h"

#include <filesystem>

#include "framework/config/read_config.h"
#include "framework/error.h"

namespace ringtrain {

namespace {

namespace fs = std::filesystem;

constexpr const char* lock_name = "lock";

/// Adds the files of a folder, but not those of folders below it. What cannot be listed has none.
void add_files(const std::string& folder, std::vector<std::string>& files) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    std::error_code unknown;
    if (entry->is_regular_file(unknown)) files.push_back(entry->path().string());
  }
}

}  // namespace

std::vector<std::string> files_of_run(const std::string& path) {
  const RunFolder run(path);
  std::vector<std::string> files;
  for (const std::string& file : {run.config_path(), run.metrics_path(), path + "/" + lock_name}) {
    if (path_exists(file)) files.push_back(file);
  }
  if (path_exists(path + "/manifest.json")) add_files(path, files);
  std::error_code error;
  for (fs::directory_iterator entry(run.checkpoints_path(), error), end; !error && entry != end;
       entry.increment(error)) {
    add_files(entry->path().string(), files);
  }
  return files;
}

bool RunFolder::holds_run() const {
  return path_exists(config_path()) || path_exists(metrics_path()) || path_exists(checkpoints_path());
}

void RunFolder::check_writable() const {
  ringtrain::check_writable(nearest_existing(path_), ExitCode::usage);
}

FileLock RunFolder::begin(const Config& config) const {
  make_directories(path_, ExitCode::usage);
  FileLock lock =
      FileLock::acquire(path_ + "/" + lock_name, path_ + ": is the folder of a run under way, of", ExitCode::usage);
  make_directories(checkpoints_path(), ExitCode::usage);
  ringtrain::check_writable(checkpoints_path(), ExitCode::usage);
  write_file(config_path(), to_yaml(config), ExitCode::usage);
  return lock;
}

}  // namespace ringtrain
