#include "train/loss_spike.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

namespace ringtrain {

bool LossSpike::is_spike(double loss) {
  bool spike = false;
  if (losses_.size() >= min_losses) {
    const auto count = static_cast<double>(losses_.size());
    const double mean = std::accumulate(losses_.begin(), losses_.end(), 0.0) / count;
    double squares = 0;
    for (const double one : losses_) squares += (one - mean) * (one - mean);
    const double stddev = std::sqrt(squares / count);
    if (loss > mean + stddevs * stddev && loss > (1 + share_of_mean) * mean) {
      last_spike_ = fmt::format("{:.4f}, where the mean of the last {} is {:.4f} and their standard deviation {:.4f}",
                                loss, losses_.size(), mean, stddev);
      spike = true;
    }
  }
  losses_.push_back(loss);
  if (losses_.size() > window) losses_.pop_front();
  return spike;
}

}  // namespace ringtrain
