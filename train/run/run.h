// What all ranks of a training run share and none changes: what its steps read, its data, where it begins and ends, its
// folder, and what is said of it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/corpus.h"
#include "framework/parameter_table.h"
#include "layers/model/model_definition.h"
#include "train/evaluation/evaluation_statistics.h"
#include "train/evaluation/evaluation_targets.h"
#include "train/run/empty_steps.h"
#include "train/run/run_folder.h"
#include "train/run/run_start.h"
#include "train/run/run_steps.h"
#include "train/run/step_report.h"

namespace ringtrain {

/// The timeline that a run is asked to leave.
struct TraceRequest {
  std::string path;  // "": none
  std::int64_t first_step = 1, last_step = INT64_MAX;
  std::vector<std::string> inputs = {};  // files, and folders of runs and checkpoints, of which it replaces nothing
};

/// What a program around a run is told, and what it is asked. The thread of rank 0 calls each between two steps, so
/// none communicates or changes the run. An empty one is not called. What one throws ends the run: an Error as it is,
/// anything else as Error(usage).
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

struct Run : RunSteps {
  Corpus corpus;
  RunFolder folder;
  ModelDefinition model;
  ParameterTable table = {};
  std::optional<EvaluationTargets> evaluation = {};  // none: this run does not evaluate
  RunStart start = {};
  std::int64_t last_step = 0;
  EmptySteps empty_steps = {};  // that are still to come
  TraceRequest trace = {};
  RunCallbacks callbacks = {};
  std::string build = {}, ranks = {};  // of this program, and what its ranks are; for the metrics
};

}  // namespace ringtrain
