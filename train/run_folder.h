// The folder of a run: config.yaml, metrics.jsonl, checkpoints/. It is never used for a second run unasked.
#pragma once

#include <string>

#include "framework/config.h"

namespace ringtrain {

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
  /// Makes the folder and writes the resolved config into it.
  void begin(const Config& config) const;

 private:
  std::string path_;
};

}  // namespace ringtrain
