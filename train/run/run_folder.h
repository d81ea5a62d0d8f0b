// The folder of a run: config.yaml, metrics.jsonl, checkpoints/. It is never used for a second run unasked, never by
// two at a time (lock), and no file that another program wrote is overwritten.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "train/checkpoint/checkpoint_folder.h"
#include "train/run/metrics_history.h"

namespace ringtrain {

/// Returns the existing files of anything that open_model() takes, which no output may overwrite: of a run at path, of
/// a checkpoint at path and its run, or of a Hugging Face or PEFT folder; or the one file at path.
std::vector<std::string> files_of_model(const std::string& path);
/// Returns the same for several paths; an empty path means none.
std::vector<std::string> files_of_models(const std::vector<std::string>& paths);

/// The contents of a run's folder before a run begins there.
struct FolderContent {
  std::vector<std::int64_t> checkpoints;  // steps of the complete ones, by name
  bool says_nothing_saved = false;        // no save of the previous run succeeded
  MetricsHistory metrics;
  std::optional<Config> config;  // empty: there is none, or it is from another version of this program

  /// Returns whether a run from step 0 would lose nothing.
  bool empty() const { return checkpoints.empty() && metrics.last_step() == 0; }
  /// Returns a text that changes once a run has trained there.
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
  std::string under_way() const { return path_ + ": is in use by another run:"; }

  /// Reads the contents. Throws Error(usage) if its config.yaml or metrics.jsonl was not written by a run, or cannot be
  /// read. A config.yaml is a run's if it has a run's form and the folder contains something else of a run.
  FolderContent look() const;
  /// Throws Error(usage) unless the folder, or its nearest existing ancestor, is writable. Leaves nothing behind.
  void check_writable() const;
  /// Makes the folder, and keeps other runs out of it as long as the lock lives. Throws Error(usage), which names the
  /// process, if another one trains into it. Calls log() if the file system has no locks.
  [[nodiscard]] FileLock lock(const Log& log) const;
  /// Waits for a moment while another process holds that lock: ranks outlive a killed launcher by a second, and some
  /// processes of the next run would see what these ranks still save, but others would not. Throws Error(usage) like
  /// lock() if the process keeps holding it.
  void wait_for_lock() const;
  /// Makes the folder of checkpoints, which records if it has none, and writes the resolved config. The caller must
  /// hold the lock: this removes the temporary files of a killed start.
  void begin(const Config& config) const;

 private:
  std::string path_;
};

}  // namespace ringtrain
