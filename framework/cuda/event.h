// A CUDA event: a point in one stream's work that another stream, or the host, can wait for. Without timing, so that it
// costs next to nothing.
#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "framework/cuda/check.h"
#include "framework/cuda/context.h"

namespace ringtrain::cuda {

class Event {
 public:
  Event() { check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "making an event"); }
  ~Event() {
    if (event_ != nullptr) ignore(cudaEventDestroy(event_));
  }
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(cudaStream_t stream) { check(cudaEventRecord(event_, stream), "recording an event"); }
  /// What `stream` is given from now on runs after what was recorded last.
  void hold_back(cudaStream_t stream) const { check(cudaStreamWaitEvent(stream, event_, 0), "ordering two streams"); }
  void synchronize() const { check(cudaEventSynchronize(event_), "waiting for the GPU's work"); }
  /// Return whether the stream has passed what was recorded last.
  bool passed() const {
    const cudaError_t status = cudaEventQuery(event_);
    if (status == cudaErrorNotReady) return false;
    check(status, "asking how far the GPU's work is");
    return true;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace ringtrain::cuda
