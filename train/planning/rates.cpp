#include "train/planning/rates.h"

#include <algorithm>

#include "framework/error.h"

namespace ringtrain {

RankRates rank_rates(const Hardware& hardware, const MeshConfig& mesh, DType dtype) {
  const double device_peak = hardware.peak(dtype);
  if (device_peak <= 0) {
    fail(ExitCode::usage, "{} has no peak_flops for {}: choose another training.dtype, or other hardware",
         hardware.name, name_of(dtype));
  }
  double devices = 1, memory = hardware.memory_bandwidth;
  if (hardware.cores > 0) {
    // Ranks of a machine share its cores: threads_per_rank of them each, as far as there are so many.
    const std::int64_t ranks = hardware.ranks_of_machine(mesh.data * mesh.sequence);
    const std::int64_t threads =
        mesh.threads_per_rank > 0 ? mesh.threads_per_rank : std::max<std::int64_t>(1, hardware.cores / ranks);
    devices = std::min(static_cast<double>(threads), static_cast<double>(hardware.cores) / static_cast<double>(ranks));
    memory = hardware.memory_bandwidth / static_cast<double>(ranks);
  }
  const double peak = device_peak * devices;
  return {.matmul = peak * hardware.matmul_efficiency,
          .attention_forward = peak * hardware.attention_forward_efficiency,
          .attention_backward = peak * hardware.attention_backward_efficiency,
          .pair_seconds_forward = hardware.pair_seconds_forward / devices,
          .pair_seconds_backward = hardware.pair_seconds_backward / devices,
          .memory = memory,
          .kernel_seconds = hardware.kernel_seconds,
          .peak = peak};
}

}  // namespace ringtrain
