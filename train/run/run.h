// What all ranks of a training run share and none changes: config, data, the order of samples, where the run begins and
// ends, its folder.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "data/corpus.h"
#include "framework/config/config.h"
#include "framework/parameter_table.h"
#include "layers/model/model_definition.h"
#include "train/checkpoint/checkpoint_folder.h"
#include "train/engine/step_dump.h"
#include "train/evaluation/evaluation_targets.h"
#include "train/evaluation/scored_part.h"
#include "train/run/empty_steps.h"
#include "train/run/run_callbacks.h"
#include "train/run/run_folder.h"
#include "train/run/run_start.h"
#include "train/run/sample_order.h"

namespace ringtrain {

/// The timeline that a run is asked to leave.
struct TraceRequest {
  std::string path;  // "": none
  std::int64_t first_step = 1, last_step = INT64_MAX;
  bool overwrite = false;                // the file may replace any but the inputs
  std::vector<std::string> inputs = {};  // files, and folders of runs and checkpoints, of which it replaces nothing
};

struct Run {
  Config config;
  ModelDefinition model = transformer_definition();
  std::vector<Config> stages;  // the config as it holds in each stage
  ParameterTable table;
  Corpus corpus;
  std::string data_hash;
  std::string id;  // which run this is, for its checkpoints: of the one that it goes on with, else of config and data
  SampleOrder order;
  EvaluationRequest evaluation;
  std::optional<EvaluationTargets> targets;  // none: this run does not evaluate
  ScoredChoice scored;                       // where they lie
  RunFolder folder;
  FolderMark found;  // in the folder, when it was decided how to begin
  CheckpointFolder checkpoints;
  RunStart start;
  EmptySteps empty_steps;  // that are still to come
  std::int64_t last_step = 0;
  bool evaluates_first = false;  // a signal broke off the evaluation of the step that the run goes on from
  /// Called by every rank in each step between loading and forward. Empty but in tests, which break things here.
  std::function<void(RankState& state, std::int64_t step)> before_forward;
  TraceRequest trace = {};
  DumpRequest dump = {};
  RunCallbacks callbacks = {};
  std::string build = {}, ranks = {};  // of this program, and what its ranks are; for the metrics

  /// Returns the config as it holds in a step, which may be 0: its length, batch and rotary positions.
  const Config& at(std::int64_t step) const;
  /// Returns which of a step's sequences is the first of a data rank's micro-batch.
  std::int64_t sequence_in_step(std::int64_t step, int data_rank, std::int64_t micro) const;
  /// Returns the samples that micro-batch `micro` of step `step` (from 1) brings to a data rank: the step's sequences
  /// are cut into one contiguous block a data rank, that into micro-batches in order.
  std::vector<Sample> samples_of(std::int64_t step, int data_rank, std::int64_t micro) const;
  /// Returns the global indices of all sequences of a step, in order.
  std::vector<std::int64_t> sample_indices(std::int64_t step) const;
  /// Returns how many micro-batches a data rank accumulates in a step.
  std::int64_t micro_batches(std::int64_t step) const;
};

}  // namespace ringtrain
