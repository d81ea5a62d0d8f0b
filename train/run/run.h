// What all ranks of a training run share and none changes: what its steps read, its data, where it begins and ends, its
// folder, and its descriptions.
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

/// The timeline that the user requests from a run.
struct TraceRequest {
  std::string path;  // "": no timeline
  std::int64_t first_step = 1, last_step = INT64_MAX;
  std::vector<std::string> inputs = {};  // files, and folders of runs and checkpoints, which it must not overwrite
};

/// Callbacks of a program around a run: reports to it, and questions for it. Rank 0's thread calls each between two
/// steps, so none may communicate or change the run. An empty one is not called. An exception from one ends the run: an
/// Error as it is, anything else as Error(usage).
struct RunCallbacks {
  /// After each step.
  std::function<void(const StepReport& report)> step = {};
  /// After each evaluation: a result for each of evaluation.context_lengths.
  std::function<void(std::int64_t step, const std::vector<LengthResult>& results)> evaluation = {};
  /// When a checkpoint is complete, in this folder.
  std::function<void(std::int64_t step, const std::string& folder)> checkpoint = {};
  /// After each step: whether the run should save and end, as done. If ranks are processes, either all or none set it;
  /// only rank 0's answer counts.
  std::function<bool(std::int64_t step)> stop = {};
};

struct Run : RunSteps {
  Corpus corpus;
  RunFolder folder;
  ModelDefinition model;
  ParameterTable table = {};
  std::optional<EvaluationTargets> evaluation = {};  // empty: this run does not evaluate
  RunStart start = {};
  std::int64_t last_step = 0;
  EmptySteps empty_steps = {};  // those that are still to come
  TraceRequest trace = {};
  RunCallbacks callbacks = {};
  std::string build = {}, ranks = {};  // of this program, and what its ranks are; for the metrics
};

}  // namespace ringtrain
