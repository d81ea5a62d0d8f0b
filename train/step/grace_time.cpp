#include "train/step/grace_time.h"

#include <fmt/format.h>

#include <algorithm>

#include "framework/profile/progress.h"

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
      "grace period: from SIGTERM until all is saved this run takes up to {}: {} to finish a step, {} to save{} (the "
      "longest so far)",
      human_duration(seconds()), human_duration(step_), human_duration(save_),
      saves_ == 1 ? "" : ", and the same again if a save is under way");
}

std::string GraceTime::bound() const {
  if (save_ > 0) return ", up to " + human_duration(seconds());
  return step_ > 0 ? fmt::format(": up to {}, and the first save", human_duration(step_)) : "";
}

}  // namespace ringtrain
