#include "train/step/grace_time.h"

#include <fmt/format.h>

#include "framework/profile/progress.h"

namespace ringtrain {

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
