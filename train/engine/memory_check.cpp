#include "train/engine/memory_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "framework/config/config.h"
#include "framework/device.h"
#include "framework/profile/progress.h"
#include "framework/system/system_memory.h"
#include "parallel/launch/communicator_factory.h"
#include "train/engine/memory_report.h"

#if RINGTRAIN_CUDA
#include "framework/cuda/context.h"
#include "framework/cuda/memory.h"
#endif

namespace ringtrain {

namespace {

std::string text_of(const std::string& name, std::int64_t bytes) {
  return fmt::format("{}: {} bytes, {}", name, bytes, human_bytes(static_cast<double>(bytes)));
}

/// Returns the plans of these ranks, without their tensors. Kinds that none of them is of are left out.
std::vector<RankPlan> plans_of(const std::vector<RankPlan>& plans, std::vector<int> ranks) {
  std::ranges::sort(ranks);
  std::vector<RankPlan> chosen;
  for (const RankPlan& plan : plans) {
    RankPlan part{{}, {}, plan.peak, plan.host};
    std::ranges::set_intersection(plan.ranks, ranks, std::back_inserter(part.ranks));
    if (!part.ranks.empty()) chosen.push_back(std::move(part));
  }
  return chosen;
}

#if RINGTRAIN_CUDA
/// What the CUDA libraries take for their own code when it is first used.
constexpr std::int64_t library_bytes = std::int64_t{256} << 20;

/// Returns what NCCL takes of a GPU besides. It says nowhere; seen in use (NVIDIA/nccl 1685, eight H100s): 12
/// MiB in each of up to 32 channels for each neighbour of a communicator, on one machine, and 0.5 GiB for all. Of ours
/// the ring's two meet two neighbours, that of the gradients at most all ranks (with reductions of NCCL's own, fewer).
/// Ranks that share a GPU meet over sockets, whose buffers are in host memory.
std::int64_t nccl_bytes(const Config& config, std::size_t ranks_on_gpu) {
  const std::int64_t ranks = config.mesh.data * config.mesh.sequence;
  if (!nccl_joins(config.mesh, ranks_on_gpu == 1) || ranks == 1) return 0;
  constexpr std::int64_t neighbour_bytes = std::int64_t{32 * 12} << 20, base_bytes = std::int64_t{512} << 20;
  constexpr std::int64_t max_neighbours = 7;  // with GPUs in one machine; those of others share buffers
  if (config.mesh.share_gpu) return static_cast<std::int64_t>(ranks_on_gpu) * base_bytes;
  const std::int64_t ring = 2 * std::min<std::int64_t>(2, config.mesh.sequence - 1);
  return base_bytes + neighbour_bytes * (ring + std::min(ranks - 1, max_neighbours));
}

struct Gpu {
  std::string name;
  std::int64_t available;
};

Gpu look_at(int index, const Config& config, std::size_t ranks) {
  const cuda::DeviceFacts facts = cuda::facts_of(index);
  return {fmt::format("GPU {} ({})", index, facts.name),
          static_cast<std::int64_t>(cuda::free_bytes(index)) - library_bytes - nccl_bytes(config, ranks)};
}

/// Returns the ranks of this process by the GPU that they share; with mesh.share_gpu, also those of other processes.
std::map<int, std::vector<int>> by_gpu(const Config& config, const LocalRanks& local) {
  std::map<int, std::vector<int>> ranks;
  for (const int rank : local.own) ranks[device_of(config.training, rank, local.here).index].push_back(rank);
  if (!config.mesh.share_gpu) return ranks;
  for (auto& [index, sharing] : ranks) {
    sharing.clear();
    std::ranges::copy_if(local.here, std::back_inserter(sharing), [&, gpu = index](int rank) {
      return device_of(config.training, rank, local.here).index == gpu;
    });
  }
  return ranks;
}
#endif

}  // namespace

void check_memory(const Config& config, const std::vector<RankPlan>& plans, const LocalRanks& local) {
  std::vector<RankPlan> on_host = plans_of(plans, local.here);
  for (RankPlan& plan : on_host) {
    if (config.training.device == Device::Kind::cuda) plan.peak = plan.host;
  }
  require_memory(on_host, usable_memory(available_memory()), "");
#if RINGTRAIN_CUDA
  if (config.training.device != Device::Kind::cuda) return;
  for (const auto& [index, ranks] : by_gpu(config, local)) {
    const Gpu gpu = look_at(index, config, ranks.size());
    require_memory(plans_of(plans, ranks), gpu.available, fmt::format(" of {}", gpu.name));
  }
#endif
}

std::string available_text([[maybe_unused]] const Config& config, [[maybe_unused]] const LocalRanks& local) {
  std::string text = text_of("available", usable_memory(available_memory())) + "\n";
#if RINGTRAIN_CUDA
  if (config.training.device == Device::Kind::cuda) {
    for (const auto& [index, ranks] : by_gpu(config, local)) {
      const Gpu gpu = look_at(index, config, ranks.size());
      text += text_of(fmt::format("available on {}, shared by {} ranks", gpu.name, ranks.size()), gpu.available) + "\n";
    }
  }
#endif
  return text;
}

}  // namespace ringtrain
