// A word on stderr while a large file is hashed, which nobody would wait for in silence.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "framework/profile/progress.h"
#include "framework/storage/hash.h"

namespace ringtrain {

/// As long as it lives, each file that this thread hashes is shown as progress, once it has taken `patience` seconds.
class HashProgress {
 public:
  explicit HashProgress(std::string task, double patience = 1, std::FILE* file = stderr);

 private:
  void show(const std::string& path, std::int64_t done, std::int64_t bytes);

  std::string task_;
  double patience_;
  std::FILE* file_;
  std::chrono::steady_clock::time_point begun_;  // the file under way
  std::int64_t done_before_ = 0;                 // of it, when progress_ was made
  std::optional<Progress> progress_;             // none: it has not taken long yet
  HashListener listener_;                        // last to be made, first to go: it uses all of the above
};

}  // namespace ringtrain
