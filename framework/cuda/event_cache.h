// Events that were let go, for those who want one next: making an event goes to the driver, so that a step makes none.
// One for the process, by GPU, since an event of one rank may be let go by another's thread.
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

  /// Returns an event of the calling thread's GPU, and sets `device` to that. Throws Error(device).
  cudaEvent_t take(bool timing, int& device);
  /// Keeps the event while there is a User; else it goes. It may still be recorded in a stream that has not got there.
  void give_back(cudaEvent_t event, bool timing, int device) noexcept;

  /// Whoever gives work to a GPU: events are kept while there is one.
  class User {
   public:
    User();
    ~User();
    User(const User&) = delete;
    User& operator=(const User&) = delete;

    /// Makes events ahead of use on the calling thread's GPU: how many messages are under way at a time differs from
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
