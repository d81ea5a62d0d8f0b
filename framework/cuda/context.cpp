#include "framework/cuda/context.h"

#include <cublasLt.h>

#include "framework/cuda/current_device.h"
#include "framework/cuda/timeline.h"
#include "framework/cuda/wait_report.h"
#include "framework/system/host_name.h"

namespace ringtrain::cuda {

namespace {

constexpr int oldest_capability = 80;  // bfloat16 products and asynchronous copies to shared memory

int attribute(cudaDeviceAttr which, int index) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, index), "asking for a property of the GPU", index);
  return value;
}

/// Returns advice about an error, beginning with "; ", if there is any.
std::string advice_for(cudaError_t status) {
  switch (status) {
    case cudaErrorDevicesUnavailable:
      return "; another process has exclusive use of the GPU, or its compute mode forbids this process (nvidia-smi "
             "shows both)";
    case cudaErrorSystemNotReady:
      return "; the machine's GPUs are not ready: GPUs that are connected by NVSwitch need a running fabric manager";
    case cudaErrorSystemDriverMismatch:
      return "; the driver was updated while the system was running: restart the machine";
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
      return "; this program has no code that the driver can run on this GPU: build it on this machine, or install a "
             "newer driver";
    case cudaErrorMemoryAllocation:
      return "; another process is using GPU memory, or the plan leaves too little of it free: use more sequence "
             "ranks, a smaller training.seq_len or another training.recompute";
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorLaunchFailure:
      return "; this is a bug in this program: run it under compute-sanitizer to see where, and report it";
    default:
      return "";
  }
}

/// Returns the name of a GPU among all of a run's machines; empty if it is not known.
std::string place_of(int device) {
  if (device < 0 && cudaGetDevice(&device) != cudaSuccess) return "";
  return fmt::format("GPU {} of host {}: ", device, host_name());
}

std::string version(int number) {
  return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
}

}  // namespace

void check(cudaError_t status, const char* what, int device) {
  if (status == cudaSuccess) return;
  const std::string hang = wait_clause();
  fail(ExitCode::device, "{}{}: {} ({}){}", place_of(device), what, cudaGetErrorString(status),
       cudaGetErrorName(status), hang.empty() ? advice_for(status) : hang);
}

int device_count() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

DeviceFacts facts_of(int index) {
  int driver = 0, runtime = 0;
  check(cudaDriverGetVersion(&driver), "asking for the version of the NVIDIA driver");
  check(cudaRuntimeGetVersion(&runtime), "asking for the version of the CUDA runtime");
  if (driver == 0) {
    fail(ExitCode::device,
         "training.device is cuda, but this machine has no NVIDIA driver; install one, or set training.device to cpu");
  }
  if (driver / 1000 < runtime / 1000) {
    fail(ExitCode::device,
         "the NVIDIA driver supports CUDA up to {}, but this program was built with CUDA {}; install a newer driver, "
         "or build with an older toolkit",
         version(driver), version(runtime));
  }
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted != cudaErrorNoDevice) check(counted, "asking the NVIDIA driver for GPUs");
  if (index >= count) {
    fail(ExitCode::device,
         "GPU {} (from 0) was requested; the number of GPUs is {} (CUDA_VISIBLE_DEVICES may hide some)", index, count);
  }
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, index), "asking for the properties of the GPU", index);
  DeviceFacts facts;
  facts.index = index;
  facts.name = properties.name;
  facts.compute_capability = 10 * properties.major + properties.minor;
  facts.multiprocessors = properties.multiProcessorCount;
  facts.shared_bytes_per_block = static_cast<std::size_t>(attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, index));
  facts.memory_bytes = properties.totalGlobalMem;
  if (facts.compute_capability < oldest_capability) {
    fail(ExitCode::device,
         "GPU {} ({}) has compute capability {}.{}, but 8.0 or newer is needed (Ampere, Ada, Hopper, ...)", index,
         facts.name, properties.major, properties.minor);
  }
  return facts;
}

cudaStream_t make_urgent_stream(const char* purpose) {
  int least = 0, greatest = 0;
  cudaStream_t stream = nullptr;
  check(cudaDeviceGetStreamPriorityRange(&least, &greatest), purpose);
  check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, greatest), purpose);
  return stream;
}

Context::Context(int index, const TensorView& scratch) : facts_(facts_of(index)), scratch_(scratch.data) {
  ensure(scratch.bytes() >= scratch_bytes, "a context's scratch is scratch_bytes");
  use_device(index);
  events_.make_spare();
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
  const cublasStatus_t status = cublasLtCreate(&blas_);
  if (status != CUBLAS_STATUS_SUCCESS) {
    ignore(cudaStreamDestroy(stream_));
    fail(ExitCode::device, "cuBLASLt cannot start on GPU {}: {}", index, cublasLtGetStatusName(status));
  }
  static constexpr float value = 1;
  check(cudaMemcpyAsync(const_cast<float*>(device_one()), &value, sizeof(value), cudaMemcpyHostToDevice, stream_),
        "writing a constant");
}

Context::~Context() {
  // Pending work may still read this rank's tensors, which are freed next.
  try {
    synchronize();
  } catch (const Error&) {  // reported before; everything is being destroyed anyway
  }
  timeline_.reset();
  cublasLtDestroy(blas_);
  ignore(cudaStreamDestroy(stream_));
}

void Context::synchronize() const {
  check(cudaStreamSynchronize(stream_), "waiting for the GPU's work");
  if (timeline_) timeline_->settle();
}

void Context::copy_to_host(void* to, const void* from, std::size_t bytes) const {
  check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream_), "copying to the host");
  synchronize();
}

void Context::record_on(RankTrace& trace) {
  timeline_ = std::make_unique<Timeline>(stream_, trace);
}

void Context::allow_shared_bytes(const void* kernel, std::size_t bytes) {
  std::size_t& allowed = shared_bytes_[kernel];
  if (bytes <= allowed) return;
  ensure(bytes <= facts_.shared_bytes_per_block, "a kernel fits the shared memory of a multiprocessor");
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)),
        "allowing a kernel its shared memory");
  allowed = bytes;
}

}  // namespace ringtrain::cuda
