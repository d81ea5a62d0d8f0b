// A CUDA event: a point in one stream's work for which another stream, or the host, can wait. Without timing it costs
// almost nothing; with timing, the GPU records when it passed the event. Events are reused (EventCache).
#pragma once

#include <cuda_runtime.h>

#include <memory>
#include <optional>
#include <utility>

#include "framework/cuda/check.h"
#include "framework/cuda/event_cache.h"

namespace ringtrain::cuda {

class Event {
 public:
  enum class Timing { off, on };
  Event() : Event(Timing::off) {}
  explicit Event(Timing timing)
      : timing_(timing == Timing::on), event_(EventCache::of_process().take(timing_, device_)) {}
  ~Event() {
    if (event_ != nullptr) EventCache::of_process().give_back(event_, timing_, device_);
  }
  Event(Event&& other) noexcept
      : timing_(other.timing_), device_(other.device_), event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(timing_, other.timing_);
    std::swap(device_, other.device_);
    std::swap(event_, other.event_);
    return *this;
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(cudaStream_t stream) { check(cudaEventRecord(event_, stream), "recording an event"); }
  /// Work that `stream` receives from now on runs after the last recorded point.
  void make_wait(cudaStream_t stream) const { check(cudaStreamWaitEvent(stream, event_, 0), "ordering two streams"); }
  /// Returns when the stream has passed the last recorded point.
  void synchronize() const {
    if (!passed()) check(cudaEventSynchronize(event_), "waiting for the GPU's work");
  }
  /// Returns whether the stream has passed the last recorded point.
  bool passed() const {
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) return false;
    check(status, "asking how far the GPU's work is");
    return true;
  }
  /// Returns the seconds from `begin` to this event by the GPU's clock, or nothing if one of them has not passed. Both
  /// must have timing and be of one GPU. (CUDA gives a float of milliseconds: exact to 0.1 us over a second.)
  std::optional<double> seconds_since(const Event& begin) const {
    float milliseconds = 0;
    const cudaError_t status = cudaEventElapsedTime(&milliseconds, begin.event_, event_);
    if (status == cudaErrorNotReady) return std::nullopt;
    check(status, "reading the time between two events");
    return static_cast<double>(milliseconds) * 1e-3;
  }

 private:
  bool timing_;
  int device_ = 0;
  cudaEvent_t event_;
};

/// Returns an event after the work that the stream has received so far.
inline std::shared_ptr<const Event> record_event(cudaStream_t stream) {
  auto event = std::make_shared<Event>();
  event->record(stream);
  return event;
}

}  // namespace ringtrain::cuda
