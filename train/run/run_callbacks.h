// What a program around a run is told, and what it is asked. The thread of rank 0 calls each between two steps, so none
// communicates or changes the run. An empty one is not called. What one throws ends the run as an error of rank 0.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "train/evaluation/evaluation_statistics.h"
#include "train/run/step_report.h"

namespace ringtrain {

struct RunCallbacks {
  /// After each step.
  std::function<void(const StepReport& report)> step = {};
  /// After each evaluation: a result for each of evaluation.context_lengths.
  std::function<void(std::int64_t step, const std::vector<LengthResult>& results)> evaluation = {};
  /// When a checkpoint is complete, in this folder.
  std::function<void(std::int64_t step, const std::string& folder)> checkpoint = {};
  /// After each step: whether the run shall save and end, as done. Ranks that are processes all set it or none does;
  /// rank 0's answer counts.
  std::function<bool(std::int64_t step)> stop = {};
};

}  // namespace ringtrain
