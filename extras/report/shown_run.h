// A run as a page shows it, and what its metrics come to.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "extras/report/chart.h"
#include "extras/report/run_metrics.h"
#include "framework/config/config.h"

namespace ringtrain {

/// A run's folder, and what is known of it besides its metrics.
struct ReportedRun {
  std::string folder;
  std::optional<Config> config = {};  // of its config.yaml
  nlohmann::json plan = {};           // what was planned: "steps", and what `plan --output` wrote of it
  std::string evaluation_path = {};   // of a file of `evaluate --output`; "": there is none
  nlohmann::json evaluation = {};     // what it holds
};

struct ShownRun {
  ReportedRun run;
  RunMetrics metrics;
  std::string name;  // of its folder

  const StepRow& last() const { return metrics.steps.back(); }
};
using ShownRuns = std::vector<ShownRun>;

/// Returns a number of every step that has it.
std::vector<ChartPoint> points_of(const ShownRun& shown, std::string_view name);

/// One number that sums a run up.
struct Measure {
  const char* name;
  double (*value)(const ShownRun&);  // NaN: the run has none
  std::string (*text)(double);
  const char* planned = "";  // its name in ReportedRun::plan
};
/// Returns the measures that a page shows, the most important first.
const std::vector<Measure>& measures();

/// A step at which something happened.
struct RunEvent {
  const StepRow* row;
  std::string_view kind;  // a name of mark_kinds
  std::string more;       // after the kind's words
};
/// Returns what happened, in the order of the steps.
std::vector<RunEvent> events_of(const ShownRun& shown);

/// Returns a member of an object as a text, "" if it is none.
std::string text_in(const nlohmann::json& object, const char* name);

/// Returns the values of the last evaluation by context length, with their intervals where those mean something.
std::vector<ChartPoint> last_by_length(const ShownRun& shown, const char* value, const char* interval);
/// Returns charts and tables of the evaluations in the runs' metrics, and of the file of one that is given besides; ""
/// if there are none. Throws json::exception if the file has another form.
std::string evaluation_part(const ShownRuns& runs);

}  // namespace ringtrain
