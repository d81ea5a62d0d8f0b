// The folder of a run: config.yaml, metrics.jsonl, checkpoints/. It is never used for a second run unasked, and never
// by two at a time (lock).
#pragma once

#include <string>
#include <vector>

#include "framework/config/config.h"
#include "framework/storage/files.h"

namespace ringtrain {

/// Return those files that exist of a run at path, or of a checkpoint at path: what no other output may replace.
std::vector<std::string> files_of_run(const std::string& path);

class RunFolder {
 public:
  explicit RunFolder(std::string path) : path_(std::move(path)) {}
  const std::string& path() const { return path_; }
  std::string config_path() const { return path_ + "/config.yaml"; }
  std::string metrics_path() const { return path_ + "/metrics.jsonl"; }
  std::string checkpoints_path() const { return path_ + "/checkpoints"; }

  /// Return whether a run has been here.
  bool holds_run() const;
  /// Throws Error(usage) unless the folder, or the nearest one above it that exists, can be written. Leaves nothing.
  void check_writable() const;
  /// Makes the folder, keeps other runs out of it as long as the lock lives, and writes the resolved config into it.
  /// Throws Error(usage) that names the process if another one trains into it.
  [[nodiscard]] FileLock begin(const Config& config) const;

 private:
  std::string path_;
};

}  // namespace ringtrain
