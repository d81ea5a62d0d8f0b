// The folder of a run: config.yaml, metrics.jsonl, checkpoints/. It is never used for a second run unasked, never by
// two at a time (lock), and nothing in it is written over that this program did not write.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "train/checkpoint/checkpoint_folder.h"
#include "train/run/metrics_history.h"

namespace ringtrain {

/// Returns those files that exist of a run at path, or of a checkpoint at path and the run that it lies in: what no
/// other output may replace.
std::vector<std::string> files_of_run(const std::string& path);
/// The same of whatever open_model() takes: also the files of a Hugging Face folder, or the one file that path is.
std::vector<std::string> files_of_model(const std::string& path);
/// The same of several paths, of which an empty one means none.
std::vector<std::string> files_of_models(const std::vector<std::string>& paths);

/// What stands in a run's folder before a run begins there.
struct FolderContent {
  std::vector<std::int64_t> checkpoints;  // steps of the complete ones, by name
  bool says_nothing_saved = false;        // the run that was here saw no save through
  MetricsHistory metrics;
  std::optional<Config> config;  // none: there is none, or it is one of another version of this program

  /// Returns whether anything would be lost by a run from step 0.
  bool empty() const { return checkpoints.empty() && metrics.last_step() == 0; }
  /// Returns what is another text once a run has trained there.
  std::string mark() const;
};

class RunFolder {
 public:
  explicit RunFolder(std::string path) : path_(std::move(path)) {}
  const std::string& path() const { return path_; }
  std::string config_path() const { return path_ + "/config.yaml"; }
  std::string metrics_path() const { return path_ + "/metrics.jsonl"; }
  std::string checkpoints_path() const { return path_ + "/checkpoints"; }
  CheckpointFolder checkpoints() const { return CheckpointFolder(checkpoints_path()); }
  std::string lock_path() const { return path_ + "/lock"; }
  std::string under_way() const { return path_ + ": is the folder of a run under way, of"; }

  /// Reads what stands there. Throws Error(usage) if its config.yaml or metrics.jsonl was not written by a run, or
  /// cannot be read. A config.yaml is a run's if it has the form of one and something else of a run stands beside it.
  FolderContent look() const;
  /// Throws Error(usage) unless the folder, or the nearest one above it that exists, can be written. Leaves nothing.
  void check_writable() const;
  /// Makes the folder, and keeps other runs out of it as long as the lock lives. Throws Error(usage) that names the
  /// process if another one trains into it. log() is told if the file system has no locks.
  [[nodiscard]] FileLock lock(const Log& log) const;
  /// Waits for a moment while another process holds that lock: ranks outlive a launcher that was killed by a second,
  /// and what they still save would be seen by some processes of the next run and not by others. Throws Error(usage) as
  /// lock() does if it goes on holding it.
  void wait_for_lock() const;
  /// Makes the folder of checkpoints, which then says so if it has none, and writes the resolved config. Needs the
  /// lock: removes the temporary files that a killed start left.
  void begin(const Config& config) const;

 private:
  std::string path_;
};

}  // namespace ringtrain
