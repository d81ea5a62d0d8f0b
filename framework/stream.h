// Where kernels run: first argument of every kernel. On a CPU a kernel is done when its call returns, and its tasks are
// spread over the rank's ThreadPool. On CUDA calls are ordered, not finished. A CPU's stream holds a constant amount of
// scratch that a kernel may fill during its call, as for packed operands of a matrix product; nothing stays in it from
// one call to the next. It also leads to the rank's row of the timeline, and to the dump of a step.
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
  /// Twice L2 of the machines we know: bounds what a matrix product packs at a time.
  static constexpr std::size_t scratch_bytes = std::size_t{4} << 20;

  /// A CPU stream over pool with the scratch_bytes of `scratch`, 64-byte aligned. All must outlive it.
  Stream(ThreadPool& pool, const TensorView& scratch, TraceTrack* trace)
      : pool_(&pool), trace_(trace), scratch_(static_cast<std::byte*>(scratch.data)) {}
  /// A CPU stream over pool, which must outlive it, with scratch of its own: for programs that plan no memory.
  explicit Stream(ThreadPool& pool)
      : pool_(&pool),
        owned_(static_cast<std::byte*>(std::aligned_alloc(64, scratch_bytes)), &std::free),
        scratch_(owned_.get()) {
    ensure(scratch_ != nullptr, "4 MiB of scratch for a stream");
  }
  /// The stream of a GPU, whose context must outlive it; null: for planning alone. pool: for the host's own work.
  Stream(cuda::Context* context, Device device, ThreadPool& pool, TraceTrack* trace)
      : device_(device), pool_(&pool), trace_(trace), cuda_(context) {}
  /// Returns where its work runs.
  Device device() const { return device_; }
  /// Returns whether that is a GPU.
  bool on_cuda() const { return !device_.is_cpu(); }
  /// Returns the context of a GPU's stream; there must be one.
  cuda::Context& cuda() const { return *cuda_; }
  /// Returns the pool of the host's work.
  ThreadPool& pool() const { return *pool_; }
  /// Returns when all that the stream was given is done. On a CPU it is when its call returns.
  void synchronize() const;
  /// Returns where spans of this stream's work are recorded; null: nowhere.
  TraceTrack* trace() const { return trace_; }
  /// Returns where tensors of this stream's work are dumped; null: nowhere.
  TensorDump* dump() const { return dump_; }
  /// Has tensors dumped there from now on, no more if null. It must outlive its use here.
  void set_dump(TensorDump* dump) { dump_ = dump; }

  /// All of the scratch as elements of type T.
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
  cuda::Context* cuda_ = nullptr;  // null: a CPU's, or a plan's
};

}  // namespace ringtrain
