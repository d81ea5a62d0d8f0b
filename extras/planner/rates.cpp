#include "extras/planner/rates.h"

#include <algorithm>

#include "framework/config/config.h"
#include "parallel/nccl/thread_blocks.h"

namespace ringtrain {

namespace {

/// Returns whether NCCL carries the ring's messages beside attention, as far as a plan knows: between nodes, and where
/// the config says so. Within a node ranks may be threads, whose copy engines take no multiprocessor.
bool leaves_multiprocessors(const Hardware& hardware, const MeshConfig& mesh) {
  if (hardware.multiprocessors == 0 || mesh.sequence == 1 || mesh.backend == Backend::threads) return false;
  const std::int64_t ranks = mesh.data * mesh.sequence;
  return mesh.backend == Backend::nccl || hardware.ranks_of_machine(ranks) < ranks;
}

}  // namespace

/// Ranks of a machine share its cores: threads_per_rank of them each, as far as there are so many.
SharedProcessors shared_processors(const Hardware& hardware, const MeshConfig& mesh) {
  const std::int64_t ranks = hardware.ranks_of_machine(mesh.data * mesh.sequence);
  const std::int64_t threads =
      mesh.threads_per_rank > 0 ? mesh.threads_per_rank : std::max<std::int64_t>(1, hardware.cores / ranks);
  return {.cores = static_cast<double>(hardware.cores),
          .threads = static_cast<double>(threads),
          .ranks = static_cast<double>(ranks),
          .rings = static_cast<double>(std::max<std::int64_t>(1, ranks / mesh.sequence))};
}

RankRates rank_rates(const Hardware& hardware, const Config& config, double mean_document) {
  double block = static_cast<double>(config.training.seq_len) / static_cast<double>(config.mesh.sequence);
  if (mean_document > 0 && parts_documents(config.data.packing)) block = std::min(block, mean_document);
  RankRates rates = rank_rates(hardware, config.mesh, config.training.dtype, block);
  if (leaves_multiprocessors(hardware, config.mesh)) {
    const auto all = static_cast<double>(hardware.multiprocessors);
    const double left = std::max(all / 2, all - nccl_thread_blocks) / all;
    rates.attention_forward *= left;
    rates.attention_backward *= left;
  }
  return rates;
}

RankRates rank_rates(const Hardware& hardware, const MeshConfig& mesh, DType dtype, double block_tokens) {
  const double device_peak = hardware.peak(dtype);
  if (device_peak <= 0) {
    fail(ExitCode::usage, "{} has no peak_flops for {}: choose another training.dtype, or other hardware",
         hardware.name, name_of(dtype));
  }
  const SharedProcessors processors = shared_processors(hardware, mesh);
  const double devices = processors.cores_of_rank();
  const double memory = hardware.memory_bandwidth / (hardware.cores > 0 ? processors.ranks : 1);
  const double peak = device_peak * devices, share = hardware.attention_share(block_tokens);
  return {.matmul = peak * hardware.matmul_efficiency,
          .attention_forward = peak * hardware.attention_forward_efficiency * share,
          .attention_backward = peak * hardware.attention_backward_efficiency * share,
          .pair_seconds_forward = hardware.pair_seconds_forward / devices,
          .pair_seconds_backward = hardware.pair_seconds_backward / devices,
          .product_byte_seconds = hardware.product_bandwidth > 0 ? 1 / (hardware.product_bandwidth * devices) : 0,
          .memory = memory,
          .kernel_seconds = hardware.kernel_seconds,
          .peak = peak};
}

}  // namespace ringtrain
