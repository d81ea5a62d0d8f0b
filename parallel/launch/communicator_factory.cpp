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

/// Returns whether ranks that were not started as processes are threads of this process, for this backend.
bool are_threads(Backend backend) {
  return backend == Backend::threads || (backend == Backend::automatic && !Launcher::expects_processes());
}

/// Gives the GPUs of ranks that are threads access to each other. Returns whether every rank's GPU can access all.
/// Collective.
bool let_gpus_reach([[maybe_unused]] Communicator& world, [[maybe_unused]] const Stream& stream) {
#if RINGTRAIN_CUDA
  const std::array<std::int64_t, 1> own_device{stream.device().index};
  const std::vector<std::int64_t> devices = all_gather(world, own_device, {"gather of GPUs"});
  const std::array<std::int64_t, 1> reached{cuda::enable_peer_access(stream.device().index, devices)};
  return std::ranges::count(all_gather(world, reached, {"gather of GPUs that reach the others"}), 0) == 0;
#else
  return false;
#endif
}

/// Throws Error(usage) if mesh.share_gpu has no effect for the ranks of a run, as far as this rank can determine by
/// itself.
void require_use_of_share_gpu(const MeshConfig& mesh, int ranks, Device device, const Launcher& launcher) {
  const bool processes = launcher.ranks_are_processes() && mesh.backend != Backend::threads;
  const char* why = nullptr;
  if (device.is_cpu()) why = "training.device is cpu";
  if (ranks == 1) why = "there is one rank";
  if (!processes && mesh.backend != Backend::nccl) why = "the ranks are threads, which can share a GPU anyway";
  if (std::ssize(launcher.ranks_here(ranks)) < ranks) why = "the ranks are on several hosts";
  if (why == nullptr) return;
  fail(ExitCode::usage,
       "mesh.share_gpu lets processes of one host share a GPU, but {}; set this key to false, or start processes on "
       "one host with training.device cuda (scripts/launch)",
       why);
}

}  // namespace

bool nccl_joins(const MeshConfig& mesh, [[maybe_unused]] bool a_gpu_each) {
  if (mesh.share_gpu) return true;
  if (mesh.backend != Backend::automatic) return mesh.backend == Backend::nccl;
  bool reach = false;
#if RINGTRAIN_CUDA
  const int gpus = std::min(static_cast<int>(mesh.data * mesh.sequence), cuda::device_count());
  reach = a_gpu_each && are_threads(mesh.backend) && cuda::every_pair_has_access(gpus);
#endif
  return built_with_nccl && a_gpu_each && !reach;
}

bool nccl_is_planned(const MeshConfig& mesh, [[maybe_unused]] Device device) {
#if RINGTRAIN_CUDA
  return nccl_joins(mesh, !device.is_cpu() && cuda::device_count() >= mesh.data * mesh.sequence);
#else
  return nccl_joins(mesh, false);
#endif
}

void require_carrier(const MeshConfig& mesh, Communicator& world, Device device, const Launcher& launcher) {
  if (mesh.share_gpu) require_use_of_share_gpu(mesh, world.size(), device, launcher);
  if (device.is_cpu() || world.size() == 1) return;
  if (mesh.share_gpu || mesh.backend == Backend::nccl ||
      (mesh.backend == Backend::automatic && launcher.ranks_are_processes())) {
    const std::string refusal = nccl_refusal(world, device, mesh.share_gpu);
    if (!refusal.empty()) fail(ExitCode::usage, "{}", refusal);
  }
}

std::shared_ptr<Communicator> make_device_communicator(const MeshConfig& mesh, Communicator& world, Stream& stream,
                                                       RankTrace* trace) {
  if (!stream.on_cuda() || world.size() == 1) return nullptr;
  if (are_threads(mesh.backend) && let_gpus_reach(world, stream)) return nullptr;
  if (mesh.backend != Backend::nccl && !mesh.share_gpu) {
    const bool may_join = mesh.backend == Backend::automatic;
    if (!may_join || !nccl_refusal(world, stream.device(), /*share_gpu=*/false).empty()) return nullptr;
  }
  std::shared_ptr<Communicator> ranks =
      with_fault_of_environment(make_nccl_communicator(world, stream, mesh.timeout_seconds, mesh.share_gpu));
  return trace ? traced_on_device(std::move(ranks), *trace) : ranks;
}

}  // namespace ringtrain
