// A run as a page shows it, and what its metrics come to.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "extras/report/chart.h"
#include "extras/report/page_parts.h"
#include "extras/report/reported_run.h"
#include "extras/report/run_metrics.h"
#include "train/run/metrics_lines.h"

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

/// Returns a member of an object as a text, "" if it is none.
std::string text_in(const nlohmann::json& object, const char* name);

/// Returns the two ends of an interval; NaN if the object has none of two numbers, or intervals mean nothing.
std::pair<double, double> interval_in(const nlohmann::json& object, const char* name, bool meaningful);
/// Returns an interval's two ends as text; "-" if they are none.
std::string interval_text(std::pair<double, double> interval);
/// Returns an object's context length as text.
std::string length_name(const nlohmann::json& object);
/// Returns the values of a list's objects by one of their numbers, which is above 0, ascending.
std::vector<ChartPoint> points_in(const nlohmann::json& list, const char* x_name, const char* value,
                                  const char* interval, bool meaningful);
/// Returns a table with a row for each of an evaluation's results.
Rows length_rows(const nlohmann::json& results, bool meaningful);

/// Returns the last evaluation's values by context length, with their intervals where those mean something.
std::vector<ChartPoint> by_length(const nlohmann::json& line, const char* value, const char* interval);
/// Returns charts and tables of the runs' evaluations; "" if there are none.
std::string evaluation_part(const ShownRuns& runs);

}  // namespace ringtrain
