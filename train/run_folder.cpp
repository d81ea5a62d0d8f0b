#include "train/run_folder.h"

#include "framework/config/read_config.h"
#include "framework/error.h"

namespace ringtrain {

bool RunFolder::holds_run() const {
  return path_exists(config_path()) || path_exists(metrics_path()) || path_exists(checkpoints_path());
}

void RunFolder::check_writable() const {
  ringtrain::check_writable(nearest_existing(path_), ExitCode::usage);
}

FileLock RunFolder::begin(const Config& config) const {
  make_directories(path_, ExitCode::usage);
  FileLock lock = FileLock::acquire(path_ + "/lock", path_ + ": is the folder of a run under way, of", ExitCode::usage);
  make_directories(checkpoints_path(), ExitCode::usage);
  ringtrain::check_writable(checkpoints_path(), ExitCode::usage);
  write_file(config_path(), to_yaml(config), ExitCode::usage);
  return lock;
}

}  // namespace ringtrain
