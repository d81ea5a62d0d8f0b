// Tells a loss spike from noise, by one rule: a loss is a spike if it lies above the mean of the losses before it by
// more than 6 standard deviations and by more than a fifth of the mean. The losses before it are the last 50 finite
// ones, spikes among them: a loss that stays high is told once or a few times. With fewer than 20 nothing is a spike.
#pragma once

#include <string>

#include "train/step/z_score.h"

namespace ringtrain {

class LossSpike {
 public:
  static constexpr double stddevs = 6, share_of_mean = 0.2;

  /// Takes the next step's loss, which is finite. Returns whether it is a spike.
  bool is_spike(double loss);
  /// Returns the last spike with the numbers it was told by.
  const std::string& last_spike() const { return last_spike_; }

 private:
  ZScore losses_;
  std::string last_spike_;
};

}  // namespace ringtrain
