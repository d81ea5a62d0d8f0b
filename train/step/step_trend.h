// How a step's loss and gradient norm stand beside those of the steps before it: z-scores and loss spikes. A run that
// goes on is given the kept lines of its metrics first, so that its numbers are those of a run that never stopped.
#pragma once

#include <cmath>
#include <optional>
#include <string>

#include "train/step/loss_spike.h"
#include "train/step/z_score.h"

namespace ringtrain {

class StepTrend {
 public:
  struct Verdict {
    std::optional<double> loss_z, grad_norm_z;  // none: too few steps before, or no number
    std::string loss_spike;                     // what the loss jumped to, and from what; empty: it did not
  };
  /// Takes the next step's numbers, finite or not: an empty step has none.
  Verdict add(double loss, double grad_norm) {
    Verdict verdict{loss_z_.add(loss), grad_norm_z_.add(grad_norm), ""};
    const bool updated = std::isfinite(loss) && std::isfinite(grad_norm);
    if (updated && spikes_.is_spike(loss)) verdict.loss_spike = spikes_.last_spike();
    return verdict;
  }

 private:
  ZScore loss_z_, grad_norm_z_;
  LossSpike spikes_;
};

}  // namespace ringtrain
