#include "extras/report/shown_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "extras/report/page_parts.h"
#include "framework/profile/progress.h"
#include "train/run/metrics_lines.h"

namespace ringtrain {

namespace {

using nlohmann::json;

/// Returns the median of a number over all steps except the first of each process, which has cold caches; NaN if none
/// has it.
double median(const ShownRun& shown, std::string_view name) {
  std::vector<double> values, warm;
  for (const StepRow& row : shown.metrics.steps) {
    const double value = row.numbers.at(name);
    if (!std::isfinite(value)) continue;
    values.push_back(value);
    if (!row.started) warm.push_back(value);
  }
  if (!warm.empty()) values = std::move(warm);
  if (values.empty()) return std::nan("");
  std::ranges::nth_element(values, values.begin() + std::ssize(values) / 2);
  return values[values.size() / 2];
}

double last_loss(const ShownRun& shown) {
  const std::vector<ChartPoint> points = points_of(shown, "loss");
  return points.empty() ? std::nan("") : smoothed(points).back();
}

double training_seconds(const ShownRun& shown) {
  double sum = 0;
  for (const ChartPoint& point : points_of(shown, "seconds")) sum += point.y;
  return sum;
}

std::string percent(double share) {
  return four_digits(100 * share) + "%";
}

}  // namespace

std::vector<ChartPoint> points_of(const ShownRun& shown, std::string_view name) {
  std::vector<ChartPoint> points;
  for (const StepRow& row : shown.metrics.steps) {
    if (std::isfinite(row.numbers.at(name))) points.push_back({static_cast<double>(row.step), row.numbers.at(name)});
  }
  return points;
}

const std::vector<Measure>& measures() {
  static const std::vector<Measure> all{
      {"loss, smoothed", last_loss, four_digits},
      {"steps", [](const ShownRun& shown) { return static_cast<double>(shown.last().step); }, four_digits, "steps"},
      {"tokens", [](const ShownRun& shown) { return shown.last().numbers.at("tokens"); }, four_digits},
      {"time in steps", training_seconds, human_duration},
      {"seconds per step, median", [](const ShownRun& shown) { return median(shown, "seconds"); }, four_digits,
       "step_seconds"},
      {"tokens per second, median", [](const ShownRun& shown) { return median(shown, "tokens_per_second"); },
       four_digits, "tokens_per_second"},
      {"MFU, median", [](const ShownRun& shown) { return median(shown, "mfu"); }, percent, "mfu"}};
  return all;
}

std::vector<RunEvent> events_of(const ShownRun& shown) {
  std::vector<RunEvent> events;
  const RunMetrics& metrics = shown.metrics;
  for (const StepRow& row : metrics.steps) {
    if (row.started && &row != &metrics.steps.front()) {
      const auto start = std::ranges::find_if(
          metrics.starts, [&](const json& one) { return number_in(one, "step") == static_cast<double>(row.step); });
      const json begun = start == metrics.starts.end() ? json::object() : *start;
      events.push_back(
          {&row, "resume", fmt::format(", mesh {} on {}", text_in(begun, "mesh"), text_in(begun, "host"))});
    }
    if (row.spike) events.push_back({&row, "spike", ""});
    if (row.empty) events.push_back({&row, "empty", ""});
    const bool finite = std::isfinite(row.numbers.at("loss")) && std::isfinite(row.numbers.at("grad_norm"));
    if (!row.empty && !finite) events.push_back({&row, "nonfinite", ""});
  }
  return events;
}

std::string text_in(const json& object, const char* name) {
  const auto found = object.find(name);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace ringtrain
