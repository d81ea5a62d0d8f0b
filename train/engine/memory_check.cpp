#include "train/engine/memory_check.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <span>
#include <utility>

#include "framework/config/config.h"
#include "framework/counted.h"
#include "framework/device.h"
#include "framework/error.h"
#include "framework/profile/progress.h"
#include "framework/system/system_memory.h"
#include "parallel/launch/communicator_factory.h"

#if RINGTRAIN_CUDA
#include "framework/cuda/context.h"
#include "framework/cuda/memory.h"
#endif

namespace ringtrain {

namespace {

/// Tensors of one tag and one shape whose names differ only in numbers ("layers.3.input"): one line of the report.
struct Line {
  Tag tag;
  std::string name;
  DType dtype;
  Shape shape;
  std::size_t bytes = 0;
  std::int64_t count = 0;
};

/// Returns a name with * for every run of digits.
std::string pattern_of(const std::string& name) {
  std::string pattern;
  for (const char c : name) {
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit || !pattern.ends_with('*')) pattern += is_digit ? '*' : c;
  }
  return pattern;
}

std::vector<Line> lines_of(const RankPlan& plan) {
  std::vector<Line> lines;
  for (const PlannedTensor& tensor : plan.tensors) {
    const std::string pattern = pattern_of(tensor.name);
    auto same = std::ranges::find_if(lines, [&](const Line& line) {
      return line.tag == tensor.tag && line.name == pattern && line.shape == tensor.shape && line.dtype == tensor.dtype;
    });
    if (same == lines.end()) same = lines.insert(lines.end(), {tensor.tag, pattern, tensor.dtype, tensor.shape});
    same->bytes += tensor.bytes;
    ++same->count;
  }
  std::ranges::stable_sort(lines, {}, &Line::tag);
  return lines;
}

std::string text_of(const RankPlan& plan) {
  std::string text;
  const auto add = [&](const char* name, std::size_t bytes) {
    text += fmt::format("  {:<13} {:>15} bytes  {:>10}\n", name, bytes, human_bytes(bytes));
  };
  const std::vector<Line> lines = lines_of(plan);
  for (int i = 0; i < tag_count; ++i) {
    const Tag tag = static_cast<Tag>(i);
    add(name_of(tag), plan.peak[tag]);
    for (const Line& line : lines) {
      if (line.tag != tag) continue;
      text += fmt::format("    {:<11} {:>15}        {} {} {}{}\n", "", line.bytes, line.name, name_of(line.dtype),
                          line.shape.to_string(), line.count > 1 ? fmt::format(" x {}", line.count) : "");
    }
  }
  add("total", plan.peak.total);
  if (plan.host.total > 0) add("host memory", plan.host.total);
  return text;
}

/// Returns "0, 1, 2"; for many, the first few and the number of the others.
std::string names_of(const std::vector<int>& ranks) {
  constexpr std::size_t most = 64, few = 8;
  const auto shown = std::span(ranks).first(ranks.size() <= most ? ranks.size() : few);
  const std::size_t extra = ranks.size() - shown.size();
  return fmt::format("{}{}", fmt::join(shown, ", "), extra > 0 ? fmt::format(" and {} more", extra) : "");
}

std::string text_of(const std::string& name, std::int64_t bytes) {
  return fmt::format("{}: {} bytes, {}\n", name, bytes, human_bytes(bytes));
}

/// Returns the plans of these ranks, without their tensors. Leaves out kinds to which none of the ranks belongs.
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

/// A GPU, and the ranks of this process that share it; with mesh.share_gpu, also the ranks of other processes.
struct Gpu {
  std::string name;
  std::int64_t available = 0;
  std::vector<int> ranks;
};

#if RINGTRAIN_CUDA
/// The memory that the CUDA libraries take for their own code on first use.
constexpr std::int64_t library_bytes = std::int64_t{256} << 20;

/// Returns the GPU memory that NCCL takes in addition. It is undocumented; measured (NVIDIA/nccl 1685, eight H100s): 12
/// MiB in each of up to 32 channels for each neighbor of a communicator, on one machine, and 0.5 GiB in total. Each of
/// the ring's two communicators has two neighbors (more if runs of hops end early, as under packed documents or a
/// contiguous causal mask: not planned, since maxCTAs should leave fewer channels), and the gradients' has at most all
/// ranks (with NCCL's own reductions, fewer). Ranks that share a GPU communicate over sockets, whose buffers are in
/// host memory.
std::int64_t nccl_bytes(const Config& config, std::size_t ranks_on_gpu) {
  const std::int64_t ranks = config.mesh.data * config.mesh.sequence;
  if (!nccl_joins(config.mesh, ranks_on_gpu == 1) || ranks == 1) return 0;
  constexpr std::int64_t neighbor_bytes = std::int64_t{32 * 12} << 20, base_bytes = std::int64_t{512} << 20;
  constexpr std::int64_t max_neighbors = 7;  // on one machine; GPUs of other machines share buffers
  if (config.mesh.share_gpu) return static_cast<std::int64_t>(ranks_on_gpu) * base_bytes;
  const std::int64_t ring = 2 * std::min<std::int64_t>(2, config.mesh.sequence - 1);
  return base_bytes + neighbor_bytes * (ring + std::min(ranks - 1, max_neighbors));
}

/// Returns the GPUs of the ranks of this process; empty for a run on CPUs.
std::vector<Gpu> gpus_of(const Config& config, const LocalRanks& local) {
  std::map<int, std::vector<int>> by_index;
  std::vector<Gpu> gpus;
  if (config.training.device != Device::Kind::cuda) return gpus;
  const auto index_of = [&](int rank) { return device_of(config.training, rank, local.here).index; };
  for (const int rank : local.of_process) by_index[index_of(rank)].push_back(rank);
  for (auto& [index, ranks] : by_index) {
    if (config.mesh.share_gpu) {
      ranks = local.here;
      std::erase_if(ranks, [&, gpu = index](int rank) { return index_of(rank) != gpu; });
    }
    const std::string name = fmt::format("GPU {} ({})", index, cuda::facts_of(index).name);
    const std::int64_t taken = library_bytes + nccl_bytes(config, ranks.size());
    gpus.push_back({name, std::max<std::int64_t>(0, cuda::free_bytes(index) - taken), ranks});
  }
  return gpus;
}
#else
std::vector<Gpu> gpus_of(const Config& /*config*/, const LocalRanks& /*local*/) {
  return {};
}
#endif

}  // namespace

std::string memory_report(const std::vector<RankPlan>& plans) {
  std::string report;
  std::int64_t ranks = 0;
  for (const RankPlan& plan : plans) {
    ranks += std::ssize(plan.ranks);
    report += fmt::format("memory of {} {}\n{}", plan.ranks.size() > 1 ? "each of the ranks" : "rank",
                          names_of(plan.ranks), text_of(plan));
  }
  return report + fmt::format("memory of {}{}: {} bytes, {}\n", ranks > 1 ? "all " : "", counted(ranks, "rank"),
                              total_bytes(plans), human_bytes(total_bytes(plans)));
}

std::size_t total_bytes(const std::vector<RankPlan>& plans) {
  std::size_t sum = 0;
  for (const RankPlan& plan : plans) sum += plan.ranks.size() * plan.peak.total;
  return sum;
}

void require_memory(const std::vector<RankPlan>& plans, std::int64_t available, const std::string& where) {
  const std::size_t needed = total_bytes(plans);
  if (needed <= static_cast<std::size_t>(std::max<std::int64_t>(available, 0))) return;
  const RankPlan& largest = *std::ranges::max_element(plans, {}, [](const RankPlan& plan) { return plan.peak.total; });
  std::set<int> ranks;  // each once, though it may have several plans
  for (const RankPlan& plan : plans) ranks.insert(plan.ranks.begin(), plan.ranks.end());
  std::string tags;
  for (int i = 0; i < tag_count; ++i) {
    const Tag tag = static_cast<Tag>(i);
    tags += fmt::format("{}{} {}", i ? ", " : "", name_of(tag), human_bytes(largest.peak[tag]));
  }
  fail(ExitCode::usage,
       "the plan does not fit: it needs {} ({} bytes) for {}, but {} ({} bytes){} are available; rank {} needs {} "
       "({}); use shorter sequences, a smaller model, or training.shard: weights (--shard-weights); to train, also "
       "a smaller micro_batch_size or mesh.data, recompute: full, offload (on a GPU), or optimizer.moments: bfloat16",
       human_bytes(needed), needed, counted(std::ssize(ranks), "rank"), human_bytes(available), available, where,
       largest.ranks.front(), human_bytes(largest.peak.total), tags);
}

void check_memory(const Config& config, const std::vector<RankPlan>& plans, const LocalRanks& local) {
  std::vector<RankPlan> on_host = plans_of(plans, local.here);
  for (RankPlan& plan : on_host) {
    if (config.training.device == Device::Kind::cuda) plan.peak = plan.host;
  }
  require_memory(on_host, usable_memory(available_memory()), "");
  for (const Gpu& gpu : gpus_of(config, local)) {
    require_memory(plans_of(plans, gpu.ranks), gpu.available, fmt::format(" of {}", gpu.name));
  }
}

std::string available_text(const Config& config, const LocalRanks& local) {
  std::string text = text_of("available", usable_memory(available_memory()));
  for (const Gpu& gpu : gpus_of(config, local)) {
    text +=
        text_of(fmt::format("available on {} for {}", gpu.name, counted(std::ssize(gpu.ranks), "rank")), gpu.available);
  }
  return text;
}

}  // namespace ringtrain
