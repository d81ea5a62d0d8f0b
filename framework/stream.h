// Where kernels run: first argument of every kernel. On a CPU a kernel is done when its call returns, and its tasks are
// spread over the rank's ThreadPool. (A CUDA stream will stand here with the same use: calls are ordered, not
// finished.) It also leads to the rank's row of the timeline.
#pragma once

#include "framework/device.h"
#include "framework/thread_pool.h"
#include "framework/trace.h"

namespace ringtrain {

class Stream {
 public:
  /// A CPU stream over pool, which must outlive it, as must trace.
  explicit Stream(ThreadPool& pool, TraceTrack* trace = nullptr) : pool_(&pool), trace_(trace) {}
  Device device() const { return device_; }
  ThreadPool& pool() const { return *pool_; }
  /// Return where spans of this stream's work are recorded; null: nowhere.
  TraceTrack* trace() const { return trace_; }

 private:
  Device device_;
  ThreadPool* pool_;
  TraceTrack* trace_;
};

}  // namespace ringtrain
