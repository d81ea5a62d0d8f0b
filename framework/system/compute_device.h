// The device that a rank computes on: its Stream, and what the stream's kernels need of the rank's memory plan (a CPU's
// scratch; on CUDA cuBLASLt's workspace and scratch for sums).
#pragma once

#include <memory>
#include <string>

#include "framework/allocator.h"
#include "framework/profile/trace.h"
#include "framework/stream.h"
#include "framework/thread_pool.h"

namespace ringtrain {

/// Returns what a device is called: a processor, or a GPU as its driver names it. Throws Error(device) if there is no
/// such GPU.
std::string name_of_device(Device device);

class ComputeDevice {
 public:
  /// Bytes of scratch on a GPU: cuBLASLt's workspace and our kernels' partial sums.
  static constexpr std::size_t gpu_scratch_bytes = std::size_t{40} << 20;

  /// On the allocator's device; in plan mode there is a stream to ask about sizes, which runs nothing. All must outlive
  /// it. trace may be null. Throws Error(device) if there is no such device; a plan needs none, nor a build with CUDA.
  ComputeDevice(Allocator& allocator, ThreadPool& pool, RankTrace* trace);
  ComputeDevice(const ComputeDevice&) = delete;
  ComputeDevice& operator=(const ComputeDevice&) = delete;

  Stream& stream() { return stream_; }

 private:
  Tensor scratch_;
  std::shared_ptr<cuda::Context> cuda_;  // of this object alone; null on a CPU, and where only a plan is made
  Stream stream_;
};

}  // namespace ringtrain
