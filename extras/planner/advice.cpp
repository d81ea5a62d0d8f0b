#include "extras/planner/plan_report.h"

#include <fmt/ranges.h>

#include <algorithm>

namespace ringtrain {

namespace {

/// Returns the names of supported hardware files with enough memory for the config.
std::vector<std::string> roomy_hardware(const Config& config, bool cores) {
  std::vector<std::string> names;
  for (const auto& [name, path] : hardware_files()) {
    const Hardware other = read_hardware(path);
    if ((other.cores > 0) != cores) continue;
    if (other.peak(config.training.dtype) > 0 && memory_need(config, other).fits(other)) names.push_back(name);
  }
  return names;
}

}  // namespace

std::vector<std::string> advice(const Config& config, const Hardware& hardware) {
  std::vector<std::string> sentences{"it " + memory_text(memory_need(config, hardware), hardware)};
  if (hardware.cores == 0) {
    const std::int64_t most = std::min<std::int64_t>(RingWork::largest_ring, config.training.seq_len);
    Config ring = config;  // of all devices, with one sequence per step
    ring.mesh.data = ring.training.global_batch_size = ring.training.micro_batch_size = 1;
    std::int64_t& devices = ring.mesh.sequence = config.mesh.data * config.mesh.sequence;
    while (devices <= most && !memory_need(ring, hardware).fits(hardware)) devices *= 2;
    sentences.push_back(devices <= most ? fmt::format("it would fit on {} devices, in one ring", devices)
                                        : fmt::format("it does not fit on any number of devices up to {}", most));
  }
  const std::int64_t length = longest_context(config, hardware);
  if (length > 0) sentences.push_back(fmt::format("it would fit with training.seq_len up to {}", length));
  const std::vector<std::string> names = roomy_hardware(config, hardware.cores > 0);
  if (!names.empty()) sentences.push_back(fmt::format("there is room on {}", fmt::join(names, ", ")));
  sentences.push_back(
      "these need less: training.shard: weights, training.recompute: full, a smaller training.micro_batch_size, "
      "training.loss_chunk or training.feedforward_chunk, and a smaller model");
  return sentences;
}

}  // namespace ringtrain
