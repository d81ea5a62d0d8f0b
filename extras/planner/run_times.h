// A whole training run, beyond its steps: evaluations and saves, as often as the config says. Pure.
#pragma once

#include "extras/planner/step_simulation.h"

namespace ringtrain {

/// How many of each a run has, and the seconds of one that training waits for.
struct RunTimes {
  double steps = 0, step_seconds = 0;
  double evaluations = 0, evaluation_seconds = 0;
  double saves = 0, save_seconds = 0;
  double last_save_seconds = 0;  // besides: the run's end waits for it
  std::int64_t checkpoint_bytes = 0;
  double seconds() const {
    return steps * step_seconds + evaluations * evaluation_seconds + saves * save_seconds + last_save_seconds;
  }
};

/// Returns the times of a run of so many steps, each of `step_seconds`. An evaluation is as many forward passes of a
/// sequence as the config has blocks, at every length. A save is a snapshot, and then a file that is written while
/// training goes on; it waits where writing takes longer than the steps between two saves, or the config has no
/// snapshot. Where the hardware does not say how fast a node writes, writing takes no time.
RunTimes run_times(const StepCase& step, double steps, double step_seconds);

}  // namespace ringtrain
