#include "train/engine/checkpoint_size.h"

#include <algorithm>

#include "train/engine/optimizer.h"

namespace ringtrain {

std::int64_t checkpoint_bytes(const Config& config, const ParameterTable& table) {
  std::int64_t elements = 0;
  for (const Parameter& parameter : table.all()) {
    const std::int64_t kinds =
        (parameter.saved ? 1 : 0) + (parameter.part == Part::frozen ? 0 : std::ssize(optimizer_state));
    elements += kinds * parameter.shape.numel();
  }
  return elements * static_cast<std::int64_t>(size_of(accumulator(config.training.dtype)));
}

std::int64_t saves_to_come(const CheckpointConfig& config, std::int64_t done, std::int64_t last) {
  if (done >= last || config.interval < 0) return 0;
  if (config.every_minutes > 0) return last - done;
  if (config.interval == 0) return 1;
  return last / config.interval - done / config.interval + (last % config.interval == 0 ? 0 : 1);
}

std::int64_t most_at_a_time(const CheckpointConfig& config, std::int64_t saved) {
  return std::min(config.keep + 1, saved);
}

}  // namespace ringtrain
