#include "train/step/loss_spike.h"

#include <fmt/format.h>

#include <optional>

namespace ringtrain {

bool LossSpike::is_spike(double loss) {
  const std::optional<Spread> before = losses_.spread();
  losses_.add(loss);
  if (!before || loss <= before->mean + stddevs * before->deviation || loss <= (1 + share_of_mean) * before->mean) {
    return false;
  }
  last_spike_ = fmt::format("{:.4f}, where the mean of the last {} is {:.4f} and their standard deviation {:.4f}", loss,
                            before->count, before->mean, before->deviation);
  return true;
}

}  // namespace ringtrain
