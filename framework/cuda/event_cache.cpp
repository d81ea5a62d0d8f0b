#include "framework/cuda/event_cache.h"

#include "framework/cuda/check.h"

namespace ringtrain::cuda {

namespace {

constexpr int spare_events = 64;

cudaEvent_t make(bool timing) {
  cudaEvent_t event = nullptr;
  check(cudaEventCreateWithFlags(&event, timing ? cudaEventDefault : cudaEventDisableTiming), "making an event");
  return event;
}

}  // namespace

EventCache& EventCache::of_process() {
  static auto& cache = *new EventCache;  // outlives all destructors that call it
  return cache;
}

cudaEvent_t EventCache::take(bool timing, int& device) {
  check(cudaGetDevice(&device), "asking for this thread's GPU");
  {
    const std::lock_guard lock(mutex_);
    if (std::vector<cudaEvent_t>& kept = kept_[device][timing]; !kept.empty()) {
      const cudaEvent_t event = kept.back();
      kept.pop_back();
      return event;
    }
  }
  return make(timing);
}

void EventCache::give_back(cudaEvent_t event, bool timing, int device) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (users_ > 0) {
      kept_[device][timing].push_back(event);
      return;
    }
  }
  ignore(cudaEventDestroy(event));
}

EventCache::User::User() {
  const std::lock_guard lock(of_process().mutex_);
  ++of_process().users_;
}

EventCache::User::~User() {
  EventCache& cache = of_process();
  std::map<int, ByTiming> gone;
  {
    const std::lock_guard lock(cache.mutex_);
    if (--cache.users_ == 0) gone.swap(cache.kept_);
  }
  for (const auto& [device, kept] : gone) {
    for (const auto& events : kept) {
      for (const cudaEvent_t event : events) ignore(cudaEventDestroy(event));
    }
  }
}

void EventCache::User::make_spare() {
  EventCache& cache = of_process();
  int device = 0;
  check(cudaGetDevice(&device), "asking for this thread's GPU");
  for (int i = 0; i < spare_events; ++i) cache.give_back(make(/*timing=*/false), /*timing=*/false, device);
}

}  // namespace ringtrain::cuda
