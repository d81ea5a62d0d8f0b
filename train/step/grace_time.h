// How long a run needs from a signal to its end: the grace time of a spot machine must cover it. Pure.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "framework/profile/progress.h"

namespace ringtrain {

class GraceTime {
 public:
  /// background: a signal may come during a pending save, which finishes before the last one begins.
  explicit GraceTime(bool background) : saves_(background ? 2 : 1) {}
  /// Adds work during which signals wait: a step, or a sequence of an evaluation.
  void add_step(double seconds) { step_ = std::max(step_, seconds); }
  void add_save(double seconds) { save_ = std::max(save_, seconds); }
  /// Returns the sum of the longest times in seconds; 0 before the first save.
  double seconds() const { return save_ > 0 ? step_ + saves_ * save_ : 0; }
  /// Returns a line for people, after the first save.
  std::string line() const {
    return fmt::format(
        "grace period: after SIGTERM this run needs up to {} to save and end: {} for a step, and {} for {} (the "
        "longest times so far)",
        human_duration(seconds()), human_duration(step_), human_duration(save_),
        saves_ == 1 ? "a save" : "each of two saves");
  }
  /// Returns how long finishing a step and saving takes, as the end of a message; "" before the first step.
  std::string bound() const {
    if (save_ > 0) return fmt::format(" takes up to {}", human_duration(seconds()));
    return step_ > 0 ? fmt::format(" takes up to {} plus the time of the first save", human_duration(step_)) : "";
  }

 private:
  int saves_;
  double step_ = 0, save_ = 0;  // the longest
};

}  // namespace ringtrain
