#include "train/run_folder.h"

#include "framework/error.h"
#include "framework/files.h"

namespace ringtrain {

bool RunFolder::holds_run() const {
  return path_exists(config_path()) || path_exists(metrics_path()) || path_exists(checkpoints_path());
}

void RunFolder::check_writable() const {
  std::string at = path_;
  while (!path_exists(at) && at != parent_directory(at)) at = parent_directory(at);
  ringtrain::check_writable(at, ExitCode::usage);
}

void RunFolder::begin(const Config& config) const {
  make_directories(path_, ExitCode::usage);
  make_directories(checkpoints_path(), ExitCode::usage);
  ringtrain::check_writable(checkpoints_path(), ExitCode::usage);
  write_file(config_path(), to_yaml(config), ExitCode::usage);
}

}  // namespace ringtrain
