// A run as a page shows it, and what its metrics come to.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "train/report/chart.h"
#include "train/report/reported_run.h"
#include "train/report/run_metrics.h"

namespace ringtrain {

struct ShownRun {
  ReportedRun run;
  RunMetrics metrics;
  std::string name;  // of its folder

  const StepRow& last() const { return metrics.steps.back(); }
};
using ShownRuns = std::vector<ShownRun>;

/// Returns a field of every step that has it as a number.
std::vector<ChartPoint> points_of(const ShownRun& shown, double StepRow::*field);
/// Returns the median of a field over the steps but the first of each process, which meets cold caches; NaN if none has
/// a number.
double median(const ShownRun& shown, double StepRow::*field);
/// Returns where the smoothed loss ends; NaN if no step has one.
double last_loss(const ShownRun& shown);
/// Returns the sum of all steps' seconds.
double training_seconds(const ShownRun& shown);

/// Returns a member of an object as a text, "" if it is none; as a number, NaN if it is none.
std::string text_in(const nlohmann::json& object, const char* name);
double number_in(const nlohmann::json& object, const char* name);

/// Returns the last evaluation's values by context length, with their intervals where those mean something.
std::vector<ChartPoint> by_length(const nlohmann::json& line, const char* value, const char* interval);
/// Returns charts and tables of the runs' evaluations; "" if there are none.
std::string evaluation_part(const ShownRuns& runs);

}  // namespace ringtrain
