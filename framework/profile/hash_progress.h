// Shows progress on stderr while a large file is hashed, so that nobody waits in silence.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

#include "framework/profile/progress.h"
#include "framework/storage/hash.h"

namespace ringtrain {

/// While this object lives, the hashing of each file by this thread is shown as progress once it has taken `patience`
/// seconds.
class HashProgress {
 public:
  explicit HashProgress(std::string task, double patience = 1, std::FILE* file = stderr);

 private:
  void show(const std::string& path, std::int64_t done, std::int64_t bytes);

  std::string task_;
  double patience_;
  std::FILE* file_;
  std::chrono::steady_clock::time_point begun_;  // of the current file
  std::int64_t done_before_ = 0;                 // of that file, when progress_ was made
  std::optional<Progress> progress_;             // empty: it has not taken long yet
  HashListener listener_;                        // declared last, destroyed first: it uses all of the above
};

}  // namespace ringtrain
