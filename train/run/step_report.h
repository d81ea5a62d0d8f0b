#pragma once

#include <cstdint>

namespace ringtrain {

/// The numbers of a step that a program around a run receives, as in its line in metrics.jsonl.
struct StepReport {
  std::int64_t step = 0;    // from 1
  std::int64_t tokens = 0;  // of the run so far
  double loss = 0;          // nats per target, before the update; NaN for a step without targets
  double grad_norm = 0;     // before clipping
  double lr = 0;
  double seconds = 0;
};

}  // namespace ringtrain
