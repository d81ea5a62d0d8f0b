// Released events, kept for reuse: creating an event calls the driver, so a step creates none. There is one cache for
// the process, by GPU, because the thread of one rank may release an event of another.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <map>
#include <mutex>
#include <vector>

namespace ringtrain::cuda {

class EventCache {
 public:
  static EventCache& of_process();

  /// Returns an event of the calling thread's GPU, and sets `device` to that GPU. Throws Error(device).
  cudaEvent_t take(bool timing, int& device);
  /// Keeps the event while there is a User, and destroys it otherwise. The event may still be pending in a stream.
  void give_back(cudaEvent_t event, bool timing, int device) noexcept;

  /// An object that gives work to a GPU: events are kept while there is one.
  class User {
   public:
    User();
    ~User();
    User(const User&) = delete;
    User& operator=(const User&) = delete;

    /// Creates events in advance on the calling thread's GPU, because the number of messages in transit differs from
    /// step to step.
    void make_spare();
  };

 private:
  using ByTiming = std::array<std::vector<cudaEvent_t>, 2>;
  std::mutex mutex_;
  std::map<int, ByTiming> kept_;  // by GPU
  int users_ = 0;
};

}  // namespace ringtrain::cuda
