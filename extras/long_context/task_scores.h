// Long-context tasks scored by likelihood: for each part of an answer, the right candidate must be the likeliest, given
// the text and the right answers before it. One pass per text.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "extras/long_context/task_samples.h"
#include "train/engine/rank_state.h"
#include "train/evaluation/evaluation_metric.h"

namespace ringtrain {

/// The combined result of some trials.
struct TaskCell {
  double trials = 0;
  double right = 0;            // the right candidate is the likeliest; if n tie, it counts 1 / n
  double exact = 0;            // every token of the answer's part is the likeliest of all, as in greedy text
  double nll = 0, tokens = 0;  // only of the answers' tokens, in nats; their number
  TaskCell& operator+=(const TaskCell& other);
};

struct TaskResult {
  TaskKind kind = TaskKind::single;
  std::vector<std::vector<TaskCell>> cells;  // [lengths][depths]
  TaskCell all;
};

struct TaskSummary {
  const TaskSamples* samples = nullptr;
  bool greedy = false;  // whether exact matches are reported
  std::vector<TaskResult> tasks;

  double chance() const { return 1.0 / static_cast<double>(samples->settings.candidates); }
};

/// Returns how far the right answers of some trials are from chance, in standard deviations of a binomial.
double deviations(const TaskCell& cell, double chance);

/// Collective over state.world: all ranks pass the same samples, to which the summary refers, and get the same result.
/// On the CPU. progress may be null; on every rank, it receives the tokens of each of its texts.
TaskSummary evaluate_tasks(RankState& state, const TaskSamples& samples, bool greedy,
                           const std::function<void(std::int64_t tokens)>& progress);

/// Returns the object in the output of `evaluate --output`.
nlohmann::ordered_json tasks_json(const TaskSummary& summary);
/// Returns heat maps as text: for each task, the share of right answers by length and depth, and the nll of the
/// answers.
std::string task_tables(const TaskSummary& summary);

struct TaskRequest {
  std::vector<TaskKind> kinds;  // in this order
  TaskSettings settings;
  bool greedy = false;  // also report how often greedy text contains the answer
};

/// The metric `--tasks`, at every context length of the evaluation.
EvaluationMetric long_context_tasks(const TaskRequest& request);

}  // namespace ringtrain
