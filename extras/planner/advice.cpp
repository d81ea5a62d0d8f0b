#include "extras/planner/advice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "framework/profile/progress.h"

namespace ringtrain {

namespace {

constexpr std::int64_t most_devices = RingWork::largest_ring;

/// Returns the config for a ring of this many ranks, with one sequence per step.
Config on_ring(const Config& config, std::int64_t ranks) {
  Config other = config;
  other.mesh.data = 1;
  other.mesh.sequence = ranks;
  other.training.global_batch_size = other.training.micro_batch_size = 1;
  return other;
}

std::string what_is_missing(const MemoryNeed& need, const Hardware& hardware) {
  std::vector<std::string> needs;
  if (need.device > usable_bytes(hardware)) {
    needs.push_back(fmt::format("{}, but it may use only {} of {}", human_bytes(need.device),
                                human_bytes(usable_bytes(hardware)), hardware.cores > 0 ? "a machine" : "a device"));
  }
  if (hardware.node_memory > 0 && need.host > hardware.node_memory) {
    needs.push_back(
        fmt::format("{} of host memory, but a node has {}", human_bytes(need.host), human_bytes(hardware.node_memory)));
  }
  return fmt::format("it needs {}", fmt::join(needs, ", and "));
}

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
  std::vector<std::string> sentences{what_is_missing(memory_need(config, hardware), hardware)};
  const std::int64_t most = std::min(most_devices, config.training.seq_len);
  if (hardware.cores == 0) {
    std::int64_t devices = config.mesh.data * config.mesh.sequence;
    while (devices <= most && !memory_need(on_ring(config, devices), hardware).fits(hardware)) devices *= 2;
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
