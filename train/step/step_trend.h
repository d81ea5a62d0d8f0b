// How a step's loss and gradient norm compare with those of the steps before it: z-scores and loss spikes. A loss is a
// spike if it exceeds the mean of the losses before it by more than 6 standard deviations and by more than a fifth of
// the mean. The losses before it include earlier spikes, so a loss that stays high is reported once or a few times.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <string>

namespace ringtrain {

/// Keeps the last `window` finite losses and gradient norms. If there are fewer than `least` of them before a step, the
/// step has no z-score and is not a spike. A resumed run first adds the kept lines of its metrics, so that its numbers
/// equal those of a run that never stopped.
class StepTrend {
 public:
  static constexpr std::size_t window = 50, least = 20;
  static constexpr double spike_deviations = 6, spike_share_of_mean = 0.2;

  struct Verdict {
    /// (value - mean) / standard deviation; empty: too few steps before, all of them equal, or the value is not finite.
    std::optional<double> loss_z, grad_norm_z;
    std::string loss_spike;  // the loss's jump: to what, and from what; empty: no spike
  };
  /// Adds the next step's numbers, finite or not: an empty step has none.
  Verdict add(double loss, double grad_norm);

 private:
  std::deque<double> losses_, grad_norms_;
};

}  // namespace ringtrain
