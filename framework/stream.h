// Where kernels run: the first argument of every kernel. On a CPU, a kernel is done when its call returns, and its
// tasks are spread over the rank's ThreadPool. On CUDA, calls are ordered, not finished. A CPU's stream holds a
// constant amount of scratch that a kernel may fill during its call, for example with packed operands of a matrix
// product; nothing is kept in it from one call to the next. A stream also points to the rank's row of the timeline, and
// to the dump of a step.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>
#include <span>

#include "framework/device.h"
#include "framework/tensor.h"
#include "framework/thread_pool.h"

namespace ringtrain {

class TraceTrack;  // framework/profile/trace.h
class TensorDump;  // framework/dump/tensor_dump.h

namespace cuda {
class Context;  // framework/cuda/context.h
}

class Stream {
 public:
  /// Twice the L2 cache of the machines we know: limits how much a matrix product packs at a time.
  static constexpr std::size_t scratch_bytes = std::size_t{4} << 20;

  /// A CPU stream that uses pool and the scratch_bytes of `scratch`, 64-byte aligned. All must outlive it.
  Stream(ThreadPool& pool, const TensorView& scratch, TraceTrack* trace)
      : pool_(&pool), trace_(trace), scratch_(static_cast<std::byte*>(scratch.data)) {}
  /// A CPU stream that uses pool, which must outlive it, and has its own scratch: for programs that plan no memory.
  explicit Stream(ThreadPool& pool)
      : pool_(&pool),
        owned_(static_cast<std::byte*>(std::aligned_alloc(64, scratch_bytes)), &std::free),
        scratch_(owned_.get()) {
    ensure(scratch_ != nullptr, "4 MiB of scratch for a stream");
  }
  /// The stream of a GPU, whose context must outlive it; null: only for planning. pool: for the host's own work.
  Stream(cuda::Context* context, Device device, ThreadPool& pool, TraceTrack* trace)
      : device_(device), pool_(&pool), trace_(trace), cuda_(context) {}
  /// Returns the device on which its work runs.
  Device device() const { return device_; }
  /// Returns whether the device is a GPU.
  bool on_cuda() const { return !device_.is_cpu(); }
  /// Returns the context of a GPU's stream; requires one.
  cuda::Context& cuda() const { return *cuda_; }
  /// Returns the pool for the host's work.
  ThreadPool& pool() const { return *pool_; }
  /// Returns when all work that the stream has received is done. On a CPU, it already is.
  void synchronize() const;
  /// Returns where spans of this stream's work are recorded; null: they are not.
  TraceTrack* trace() const { return trace_; }
  /// Returns where tensors of this stream's work are dumped; null: they are not.
  TensorDump* dump() const { return dump_; }
  /// From now on, dumps tensors there; null: none. The dump must outlive its use here.
  void set_dump(TensorDump* dump) { dump_ = dump; }

  /// Returns all of the scratch as elements of type T.
  template <class T>
  std::span<T> scratch() const {
    return {reinterpret_cast<T*>(scratch_), scratch_bytes / sizeof(T)};
  }

 private:
  Device device_;
  ThreadPool* pool_;
  TraceTrack* trace_ = nullptr;
  TensorDump* dump_ = nullptr;
  std::unique_ptr<std::byte, decltype(&std::free)> owned_{nullptr, &std::free};
  std::byte* scratch_ = nullptr;
  cuda::Context* cuda_ = nullptr;  // null: the stream is a CPU's or a plan's
};

}  // namespace ringtrain
