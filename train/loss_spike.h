// Tells a loss spike from noise, by one rule: a loss is a spike if it lies above the mean of the losses before it by
// more than 6 standard deviations and by more than a fifth of the mean. The losses before it are the last 50 finite
// ones, spikes among them: a loss that stays high is told once or a few times. With fewer than 20 nothing is a spike.
// Starts anew when a run is resumed.
#pragma once

#include <deque>
#include <string>

namespace ringtrain {

class LossSpike {
 public:
  static constexpr std::size_t window = 50, min_losses = 20;
  static constexpr double stddevs = 6, share_of_mean = 0.2;

  /// Takes the next step's loss, which is finite. Return whether it is a spike.
  bool is_spike(double loss);
  /// Return the last spike with the numbers it was told by.
  const std::string& last_spike() const { return last_spike_; }

 private:
  std::deque<double> losses_;
  std::string last_spike_;
};

}  // namespace ringtrain
