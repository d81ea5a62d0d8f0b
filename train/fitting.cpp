#include "train/fitting.h"

#include <fmt/format.h>

#include <map>

#include "framework/progress.h"
#include "train/memory_report.h"
#include "train/system_memory.h"

#if RINGTRAIN_CUDA
#include "framework/cuda/context.h"
#include "framework/cuda/memory.h"
#endif

namespace ringtrain {

namespace {

std::string text_of(const std::string& name, std::int64_t bytes) {
  return fmt::format("{}: {} bytes, {}", name, bytes, human_bytes(static_cast<double>(bytes)));
}

#if RINGTRAIN_CUDA
/// What the CUDA libraries take for their own code when it is first used.
constexpr std::int64_t library_bytes = std::int64_t{256} << 20;

struct Gpu {
  std::string name;
  std::int64_t available;
};

Gpu look_at(int index) {
  const cuda::DeviceFacts facts = cuda::facts_of(index);
  return {fmt::format("GPU {} ({})", index, facts.name),
          static_cast<std::int64_t>(cuda::free_bytes(index)) - library_bytes};
}

/// Return the ranks of `here` by the GPU that they share.
std::map<int, std::vector<int>> by_gpu(const Config& config, std::span<const int> here) {
  std::map<int, std::vector<int>> ranks;
  for (const int rank : here) ranks[device_of(config.training, rank, here).index].push_back(rank);
  return ranks;
}
#endif

}  // namespace

void require_fitting(const Config& config, const std::vector<RankPlan>& plans, std::span<const int> here) {
  std::vector<RankPlan> on_host;
  for (const int rank : here) {
    RankPlan plan = plans[static_cast<std::size_t>(rank)];
    if (config.training.device == "cuda") plan.peak = plan.host;
    on_host.push_back(std::move(plan));
  }
  require_memory(on_host, available_memory(), "");
#if RINGTRAIN_CUDA
  if (config.training.device != "cuda") return;
  for (const auto& [index, ranks] : by_gpu(config, here)) {
    std::vector<RankPlan> sharing;
    for (const int rank : ranks) sharing.push_back(plans[static_cast<std::size_t>(rank)]);
    const Gpu gpu = look_at(index);
    require_memory(sharing, gpu.available, fmt::format(" of {}", gpu.name));
  }
#endif
}

std::string available_text([[maybe_unused]] const Config& config, [[maybe_unused]] std::span<const int> here) {
  std::string text = text_of("available", available_memory()) + "\n";
#if RINGTRAIN_CUDA
  if (config.training.device == "cuda") {
    for (const auto& [index, ranks] : by_gpu(config, here)) {
      const Gpu gpu = look_at(index);
      text += text_of(fmt::format("available on {}, shared by {} ranks", gpu.name, ranks.size()), gpu.available) + "\n";
    }
  }
#endif
  return text;
}

}  // namespace ringtrain
