#include "framework/system/compute_device.h"

#include "framework/system/host_name.h"

#if RINGTRAIN_CUDA
#include "framework/cuda/context.h"
#endif

namespace ringtrain {

const bool built_with_cuda = RINGTRAIN_CUDA;
const bool built_with_nccl = RINGTRAIN_NCCL;

namespace {

std::size_t scratch_bytes(Device device) {
#if RINGTRAIN_CUDA
  static_assert(cuda::Context::scratch_bytes == ComputeDevice::gpu_scratch_bytes);
#endif
  return device.is_cpu() ? Stream::scratch_bytes : ComputeDevice::gpu_scratch_bytes;
}

}  // namespace

std::string name_of_device(Device device) {
#if RINGTRAIN_CUDA
  if (!device.is_cpu()) return cuda::facts_of(device.index).name;
#endif
  return device.is_cpu() ? processor_name() : device.name();
}

ComputeDevice::ComputeDevice(Allocator& allocator, ThreadPool& pool, RankTrace* trace)
    : scratch_(allocator.make(Tag::workspace, "kernel scratch", DType::uint8,
                              {static_cast<std::int64_t>(scratch_bytes(allocator.device()))})),
      stream_(pool, scratch_.view(), trace ? &trace->work : nullptr) {
  if (allocator.device().is_cpu()) return;
#if RINGTRAIN_CUDA
  if (!allocator.planning()) cuda_ = std::make_shared<cuda::Context>(allocator.device().index, scratch_.view());
  if (cuda_ && trace) cuda_->record_on(*trace);
  stream_ = Stream(cuda_.get(), allocator.device(), pool, trace ? &trace->work : nullptr);
#else
  if (allocator.planning()) {
    stream_ = Stream(nullptr, allocator.device(), pool, nullptr);
    return;
  }
  fail(ExitCode::device,
       "training.device is {}, but this program was built without CUDA; use cpu, or build with cmake --preset cuda",
       allocator.device().name());
#endif
}

}  // namespace ringtrain
