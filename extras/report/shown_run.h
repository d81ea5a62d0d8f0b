// A run as a page shows it: its folder, its metrics.jsonl (the numbers of every step, and the few lines that are shown
// whole), and what is known in addition; and numbers that summarize it.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "extras/report/chart.h"
#include "framework/config/config.h"

namespace ringtrain {

/// The content of a step's line.
struct StepRow {
  std::int64_t step = 0;
  std::map<std::string_view, double> numbers = {};  // by the names that a page shows; NaN for a missing one
  bool empty = false, spike = false;
  bool started = false;  // whether it is the first of a process
};

// NOLINTNEXTLINE(bugprone-exception-escape): the JSON library's assertions
struct RunMetrics {
  std::vector<StepRow> steps;                   // ascending; if a step has several lines, the last one
  std::vector<nlohmann::json> evaluations;      // in the order of the file
  std::vector<nlohmann::json> starts;           // "started" of each process, with the "step" of its line
  nlohmann::json peaks;                         // "peak_bytes" of the last line that has them; null: none
  nlohmann::json ring;                          // "ring" likewise, with its "step"
  std::int64_t skipped = 0, first_skipped = 0;  // lines that were not understood, and the number of the first
};

/// Reads the file line by line. Throws Error(usage) if it has no training step, or is not a regular file.
RunMetrics read_run_metrics(const std::string& path);

struct ShownRun {
  std::string folder;
  std::optional<Config> config = {};  // of its config.yaml
  nlohmann::json plan = {};           // the plan: "steps", and what `plan --output` wrote for it
  std::string evaluation_path = {};   // of a file of `evaluate --output`; "": none
  nlohmann::json evaluation = {};     // its content
  // Set by html_report().
  RunMetrics metrics = {};
  std::string name = {};  // of its folder
};
using ShownRuns = std::vector<ShownRun>;

/// Returns a number of every step that has it.
std::vector<ChartPoint> points_of(const ShownRun& shown, std::string_view name);

/// Returns a run's measures, each with the planned value if it is known.
std::string tiles(const ShownRun& shown);
/// Returns the measures that two runs have, with the change from the first to the second.
std::string comparison(const ShownRun& a, const ShownRun& b);

/// A step at which an event happened.
struct RunEvent {
  const StepRow* row;
  std::string_view kind;  // a name of mark_kinds
  std::string detail;     // after the kind's words
};
/// Returns the events, in the order of the steps.
std::vector<RunEvent> events_of(const ShownRun& shown);

/// Returns a member of an object as a text, or "" if it is not one.
std::string text_in(const nlohmann::json& object, const char* name);

/// Returns the values of the last evaluation by context length, with their intervals if those are meaningful.
std::vector<ChartPoint> last_by_length(const ShownRun& shown, const char* value, const char* interval);
/// Returns charts and tables of the evaluations in the runs' metrics, and of the given file, if any; "" if there are
/// none. Throws json::exception if the file is invalid.
std::string evaluation_part(const ShownRuns& runs);

}  // namespace ringtrain
