// Where kernels run: first argument of every kernel. On a CPU a kernel is done when its call returns, and its tasks are
// spread over the rank's ThreadPool. (A CUDA stream will stand here with the same use: calls are ordered, not
// finished.)
#pragma once

#include "framework/device.h"
#include "framework/thread_pool.h"

namespace ringtrain {

class Stream {
 public:
  /// A CPU stream over pool, which must outlive it.
  explicit Stream(ThreadPool& pool) : pool_(&pool) {}
  Device device() const { return device_; }
  ThreadPool& pool() const { return *pool_; }

 private:
  Device device_;
  ThreadPool* pool_;
};

}  // namespace ringtrain
