// A rank's resources on a GPU: the device, its compute stream, cuBLASLt with its workspace, and the facts of the chip
// that kernels depend on. A ringtrain::Stream on CUDA points to one (Stream::cuda). Work given to a Context is ordered,
// not finished. The host waits for it only in synchronize(), with which a copy into host memory ends.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "framework/cuda/event_cache.h"
#include "framework/tensor.h"

struct cublasLtContext;  // cublasLt.h: for files that call it

namespace ringtrain {
struct RankTrace;  // framework/profile/trace.h
}

namespace ringtrain::cuda {

class Timeline;  // framework/cuda/timeline.h

/// What a kernel needs to know about the chip.
struct DeviceFacts {
  int index = 0;
  std::string name;
  int compute_capability = 0;  // 80, 90, ...
  int multiprocessors = 0;
  std::size_t shared_bytes_per_block = 0;  // the most that a kernel may request
  std::size_t memory_bytes = 0;            // of the whole card
};

/// Returns the number of GPUs; 0 without a driver, or if the driver cannot report it (facts_of can).
int device_count();
/// Returns the facts of GPU `index`. Throws Error(device) if there is none, if it is older than sm_80, or if the driver
/// is older than this build's runtime.
DeviceFacts facts_of(int index);

/// Returns a new stream of this thread's GPU with the highest priority, for work that moves data during a context's
/// work and needs little of the GPU, but soon. The caller destroys it. Throws Error(device) that names `purpose`.
cudaStream_t make_urgent_stream(const char* purpose);

/// What distinguishes one product from another: sizes, types, alignments (kernels/cuda/matmul.cu).
using BlasKey = std::array<std::int64_t, 13>;
/// cuBLASLt's choice for a product: its opaque words, and the workspace that they need.
struct BlasChoice {
  std::array<std::uint64_t, 8> algorithm;
  std::size_t workspace_bytes;
};

class Context {
 public:
  /// Bytes of workspace for cuBLASLt: NVIDIA's recommendation for Hopper.
  static constexpr std::size_t blas_workspace_bytes = std::size_t{32} << 20;
  /// Bytes for constants.
  static constexpr std::size_t constants_bytes = 256;
  /// Bytes for partial sums of our own kernels. Nothing is kept in them from one call to the next.
  static constexpr std::size_t partial_sums_bytes = (std::size_t{8} << 20) - constants_bytes;
  static constexpr std::size_t scratch_bytes = blas_workspace_bytes + partial_sums_bytes + constants_bytes;

  /// Makes `index` this thread's current device, and creates a stream on it. scratch: device memory of scratch_bytes
  /// that outlives the Context.
  Context(int index, const TensorView& scratch);
  ~Context();
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  int device() const { return facts_.index; }
  int compute_capability() const { return facts_.compute_capability; }
  int multiprocessors() const { return facts_.multiprocessors; }
  std::size_t shared_bytes_per_block() const { return facts_.shared_bytes_per_block; }
  cudaStream_t stream() const { return stream_; }
  cublasLtContext* blas() const { return blas_; }
  void* blas_workspace() const { return scratch_; }
  /// Returns partial_sums_bytes, aligned to 256 bytes.
  void* partial_sums() const { return static_cast<std::byte*>(scratch_) + blas_workspace_bytes; }
  /// Returns a 1 in GPU memory.
  const float* device_one() const {
    return reinterpret_cast<const float*>(static_cast<const std::byte*>(scratch_) + blas_workspace_bytes +
                                          partial_sums_bytes);
  }

  /// The most elements that an operand of a product may have (see kernels/cuda/matmul.cu); tests lower it.
  std::int64_t max_blas_elements() const { return max_blas_elements_; }
  void limit_blas_elements(std::int64_t most) { max_blas_elements_ = most; }

  /// The choices made so far, one per product.
  std::map<BlasKey, std::optional<BlasChoice>>& blas_choices() { return blas_choices_; }

  /// Returns when all work given to the stream is done. Throws Error(device) that says what went wrong in it.
  void synchronize() const;
  /// Copies `bytes` of GPU memory to the host after all work that the stream has received, and returns when they have
  /// arrived.
  void copy_to_host(void* to, const void* from, std::size_t bytes) const;

  /// From now on, trace shows the GPU's time. It must outlive this object.
  void record_on(RankTrace& trace);
  /// Returns the timeline that records what other streams transfer for this one; null: none.
  Timeline* timeline() const { return timeline_.get(); }

  /// Lets a kernel use `bytes` of dynamic shared memory; calls the driver once per kernel. Used by launch().
  void allow_shared_bytes(const void* kernel, std::size_t bytes);

 private:
  DeviceFacts facts_;
  EventCache::User events_;
  cudaStream_t stream_ = nullptr;
  cublasLtContext* blas_ = nullptr;
  void* scratch_;
  std::int64_t max_blas_elements_ = (std::int64_t{1} << 31) - 1;
  std::map<const void*, std::size_t> shared_bytes_;  // allowed so far
  std::map<BlasKey, std::optional<BlasChoice>> blas_choices_;
  std::unique_ptr<Timeline> timeline_;  // null: nothing is traced
};

}  // namespace ringtrain::cuda
