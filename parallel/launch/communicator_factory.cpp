#include "parallel/launch/communicator_factory.h"

#include <utility>

#include "parallel/fault_injection.h"
#include "parallel/nccl/nccl_communicator.h"
#include "parallel/traced_communicator.h"

#if RINGTRAIN_CUDA
#include "framework/cuda/context.h"
#endif

namespace ringtrain {

bool nccl_joins(Backend backend, bool a_gpu_each) {
  return backend == Backend::nccl || (backend == Backend::automatic && built_with_nccl && a_gpu_each);
}

bool nccl_is_planned(Backend backend, [[maybe_unused]] Device device, [[maybe_unused]] int ranks) {
#if RINGTRAIN_CUDA
  return nccl_joins(backend, !device.is_cpu() && cuda::device_count() >= ranks);
#else
  return nccl_joins(backend, false);
#endif
}

void require_carrier(Backend backend, Communicator& world, Device device, bool ranks_are_processes) {
  if (device.is_cpu() || world.size() == 1) return;
  if (backend == Backend::nccl || (backend == Backend::automatic && ranks_are_processes)) {
    require_a_gpu_each(world, device);
  }
}

std::unique_ptr<Communicator> make_device_communicator(Backend backend, Communicator& world, Stream& stream,
                                                       double timeout_seconds, RankTrace* trace) {
  if (!stream.on_cuda() || world.size() == 1) return nullptr;
  std::unique_ptr<Communicator> ranks;
  if (backend == Backend::nccl) ranks = make_nccl_communicator(world, stream, timeout_seconds);
  if (backend == Backend::automatic) ranks = nccl_if_each_has_a_gpu(world, stream, timeout_seconds);
  if (!ranks) return nullptr;
  ranks = with_fault_of_environment(std::move(ranks));
  return trace ? traced_on_device(std::move(ranks), *trace) : std::move(ranks);
}

}  // namespace ringtrain
