#include "framework/profile/hash_progress.h"

#include <utility>

#include "framework/profile/clock.h"

namespace ringtrain {

HashProgress::HashProgress(std::string task, double patience, std::FILE* file)
    : task_(std::move(task)),
      patience_(patience),
      file_(file),
      listener_([this](const std::string& path, std::int64_t done, std::int64_t bytes) { show(path, done, bytes); }) {}

void HashProgress::show(const std::string& path, std::int64_t done, std::int64_t bytes) {
  if (done == 0) {
    begun_ = std::chrono::steady_clock::now();
    progress_.reset();
  }
  if (seconds_since(begun_) < patience_) return;
  if (!progress_) {
    progress_.emplace(task_, bytes, file_);
    done_before_ = done;
  }
  progress_->update(done, "hashing " + path, static_cast<double>(done - done_before_), "bytes");
  if (done == bytes) progress_.reset();
}

}  // namespace ringtrain
