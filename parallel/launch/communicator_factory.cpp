#include "parallel/launch/communicator_factory.h"

#include <algorithm>
#include <array>
#include <utility>

#include "parallel/collectives.h"
#include "parallel/fault_injection.h"
#include "parallel/launch/launcher.h"
#include "parallel/nccl/nccl_communicator.h"
#include "parallel/traced_communicator.h"

#if RINGTRAIN_CUDA
#include "framework/cuda/context.h"
#include "framework/cuda/peer_access.h"
#endif

namespace ringtrain {

namespace {

/// Whether ranks that the backend leaves to themselves are threads of this process.
bool are_threads(Backend backend) {
  return backend == Backend::threads || (backend == Backend::automatic && !Launcher::expects_processes());
}

/// Lets the GPUs of ranks that are threads reach each other. Returns whether every rank's reaches all. Collective.
bool let_gpus_reach([[maybe_unused]] Communicator& world, [[maybe_unused]] const Stream& stream) {
#if RINGTRAIN_CUDA
  const std::array<std::int64_t, 1> own{stream.device().index};
  const std::vector<std::int64_t> devices = all_gather(world, own, {"gather of GPUs"});
  const std::array<std::int64_t, 1> reached{cuda::enable_peer_access(stream.device().index, devices)};
  return std::ranges::count(all_gather(world, reached, {"gather of GPUs that reach the others"}), 0) == 0;
#else
  return false;
#endif
}

}  // namespace

bool nccl_joins(Backend backend, bool a_gpu_each, [[maybe_unused]] int ranks) {
  if (backend != Backend::automatic) return backend == Backend::nccl;
  bool reach = false;
#if RINGTRAIN_CUDA
  reach = a_gpu_each && are_threads(backend) && cuda::every_pair_has_access(std::min(ranks, cuda::device_count()));
#endif
  return built_with_nccl && a_gpu_each && !reach;
}

bool nccl_is_planned(Backend backend, [[maybe_unused]] Device device, [[maybe_unused]] int ranks) {
#if RINGTRAIN_CUDA
  return nccl_joins(backend, !device.is_cpu() && cuda::device_count() >= ranks, ranks);
#else
  return nccl_joins(backend, false, ranks);
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
  if (are_threads(backend) && let_gpus_reach(world, stream)) return nullptr;
  std::unique_ptr<Communicator> ranks;
  if (backend == Backend::nccl) ranks = make_nccl_communicator(world, stream, timeout_seconds);
  if (backend == Backend::automatic) ranks = nccl_if_each_has_a_gpu(world, stream, timeout_seconds);
  if (!ranks) return nullptr;
  ranks = with_fault_of_environment(std::move(ranks));
  return trace ? traced_on_device(std::move(ranks), *trace) : std::move(ranks);
}

}  // namespace ringtrain
