#include "train/step/grace_time.h"

#include <fmt/format.h>

#include <algorithm>

namespace ringtrain {

void GraceTime::add_step(double seconds) {
  step_ = std::max(step_, seconds);
}

void GraceTime::add_save(double seconds) {
  save_ = std::max(save_, seconds);
}

double GraceTime::seconds() const {
  return save_ > 0 ? step_ + saves_ * save_ : 0;
}

std::string GraceTime::line() const {
  if (save_ == 0) return "";
  return fmt::format(
      "grace time: a signal loses nothing if the run is left {:.2f} s: a step (at most {:.2f} s so far) and {} "
      "(at most {:.2f} s{})",
      seconds(), step_, saves_ == 1 ? "a save" : "a save, after one that may be under way", save_,
      saves_ == 1 ? "" : " each");
}

}  // namespace ringtrain
