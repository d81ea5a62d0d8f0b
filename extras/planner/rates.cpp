#include "extras/planner/rates.h"

#include "framework/config/config.h"
#include "parallel/nccl/thread_blocks.h"

namespace ringtrain {

/// Ranks of a machine share its cores: each has threads_per_rank of them, if there are enough.
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
  const MeshConfig& mesh = config.mesh;
  const double device_peak = hardware.peak(config.training.dtype);
  if (device_peak <= 0) {
    fail(ExitCode::usage, "{} has no peak_flops for {}: add it, or choose another training.dtype or --hardware",
         hardware.name, name_of(config.training.dtype));
  }
  double block = static_cast<double>(config.training.seq_len) / static_cast<double>(mesh.sequence);
  if (mean_document > 0 && parts_documents(config.data.packing)) block = std::min(block, mean_document);
  double attention = hardware.attention_share(block);
  // NCCL transfers the ring's messages during attention between nodes, and wherever the config says so. Within a node,
  // ranks may be threads, whose copy engines need no multiprocessor.
  const std::int64_t ranks = mesh.data * mesh.sequence;
  const bool nccl =
      mesh.backend == Backend::nccl || (mesh.backend != Backend::threads && hardware.ranks_of_machine(ranks) < ranks);
  if (nccl && hardware.multiprocessors > 0 && mesh.sequence > 1) {
    const auto all = static_cast<double>(hardware.multiprocessors);
    attention *= std::max(all / 2, all - nccl_thread_blocks) / all;
  }
  const SharedProcessors processors = shared_processors(hardware, mesh);
  const double devices = processors.cores_of_rank(), peak = device_peak * devices;
  return {.matmul = peak * hardware.matmul_efficiency,
          .attention_forward = peak * hardware.attention_forward_efficiency * attention,
          .attention_backward = peak * hardware.attention_backward_efficiency * attention,
          .pair_seconds_forward = hardware.pair_seconds_forward / devices,
          .pair_seconds_backward = hardware.pair_seconds_backward / devices,
          .product_byte_seconds = hardware.product_bandwidth > 0 ? 1 / (hardware.product_bandwidth * devices) : 0,
          .memory = hardware.memory_bandwidth / (hardware.cores > 0 ? processors.ranks : 1),
          .kernel_seconds = hardware.kernel_seconds,
          .peak = peak};
}

}  // namespace ringtrain
