// The device on which a rank computes: its Stream, and what the stream's kernels need from the rank's memory plan (a
// CPU's scratch; on CUDA cuBLASLt's workspace and scratch for sums).
#pragma once

#include <memory>
#include <string>

#include "framework/allocator.h"
#include "framework/profile/trace.h"
#include "framework/stream.h"
#include "framework/thread_pool.h"

namespace ringtrain {

/// Returns a device's name: that of a processor, or of a GPU as its driver gives it. Throws Error(device) if there is
/// no such GPU.
std::string name_of_device(Device device);

class ComputeDevice {
 public:
  /// Bytes of scratch on a GPU: cuBLASLt's workspace and our kernels' partial sums.
  static constexpr std::size_t gpu_scratch_bytes = std::size_t{40} << 20;

  /// Creates a stream on the allocator's device; in plan mode, it only answers questions about sizes and runs nothing.
  /// All arguments must outlive this object. trace may be null. Throws Error(device) if there is no such device; a plan
  /// needs neither the device nor a build with CUDA.
  ComputeDevice(Allocator& allocator, ThreadPool& pool, RankTrace* trace);
  ComputeDevice(const ComputeDevice&) = delete;
  ComputeDevice& operator=(const ComputeDevice&) = delete;

  Stream& stream() { return stream_; }

 private:
  Tensor scratch_;
  std::shared_ptr<cuda::Context> cuda_;  // owned only by this object; null on a CPU and in a plan
  Stream stream_;
};

}  // namespace ringtrain
