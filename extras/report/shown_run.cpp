#include "extras/report/shown_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
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

double last_average(const ShownRun& shown, std::string_view name) {
  const std::vector<ChartPoint> points = points_of(shown, name);
  return points.empty() ? std::nan("") : smoothed(points).back();
}

double last(const ShownRun& shown, std::string_view name) {
  return shown.metrics.steps.back().numbers.at(name);
}

double sum(const ShownRun& shown, std::string_view name) {
  double sum = 0;
  for (const ChartPoint& point : points_of(shown, name)) sum += point.y;
  return sum;
}

std::string percent(double share) {
  return four_digits(100 * share) + "%";
}

/// One number that summarizes a run.
struct Measure {
  const char* name;
  double (*value)(const ShownRun&, std::string_view field);  // NaN: the run has none
  const char* field;                                         // of its metrics
  std::string (*text)(double);
  const char* planned = "";  // its name in ShownRun::plan
};
/// The most important first.
constexpr std::array<Measure, 7> measures{
    {{"loss, smoothed", last_average, "loss", four_digits},
     {"steps", last, "step", four_digits, "steps"},
     {"tokens", last, "tokens", four_digits},
     {"time in steps", sum, "seconds", human_duration},
     {"seconds per step, median", median, "seconds", four_digits, "step_seconds"},
     {"tokens per second, median", median, "tokens_per_second", four_digits, "tokens_per_second"},
     {"MFU, median", median, "mfu", percent, "mfu"}}};

}  // namespace

std::vector<ChartPoint> points_of(const ShownRun& shown, std::string_view name) {
  std::vector<ChartPoint> points;
  for (const StepRow& row : shown.metrics.steps) {
    if (std::isfinite(row.numbers.at(name))) points.push_back({static_cast<double>(row.step), row.numbers.at(name)});
  }
  return points;
}

std::string tiles(const ShownRun& shown) {
  std::string html = "<div class=\"tiles\">\n";
  for (const auto& [name, value, field, text, planned_name] : measures) {
    const double measured = value(shown, field), planned = number_in(shown.plan, planned_name);
    if (!std::isfinite(measured)) continue;
    html += fmt::format("<div><b>{}</b><span>{}{}</span></div>\n", escaped(text(measured)), name,
                        std::isfinite(planned) ? "; planned: " + text(planned) : "");
  }
  return html + "</div>\n";
}

std::string comparison(const ShownRun& a, const ShownRun& b) {
  Rows rows{{"", a.name, b.name, "change"}};
  const auto add = [&](const std::string& name, double of_a, double of_b, std::string (*text)(double)) {
    const double change = of_b - of_a;
    if (!std::isfinite(change)) return;
    rows.push_back({name, text(of_a), text(of_b), (change > 0 ? "+" : change < 0 ? "-" : "") + text(std::abs(change))});
  };
  for (const auto& [name, value, field, text, planned] : measures) add(name, value(a, field), value(b, field), text);
  for (auto row = b.metrics.steps.rbegin(); row != b.metrics.steps.rend(); ++row) {
    const auto same = std::ranges::lower_bound(a.metrics.steps, row->step, {}, &StepRow::step);
    if (same == a.metrics.steps.end() || same->step != row->step) continue;
    add(fmt::format("loss of step {}, the last that both have", row->step), same->numbers.at("loss"),
        row->numbers.at("loss"), four_digits);
    break;
  }
  for (const ChartPoint& of_a : last_by_length(a, "nll", "ci95")) {
    for (const ChartPoint& of_b : last_by_length(b, "nll", "ci95")) {
      if (of_a.x == of_b.x)
        add(fmt::format("nll at {:.0f} tokens, last evaluation", of_a.x), of_a.y, of_b.y, four_digits);
    }
  }
  return heading("Compared") + table(rows);
}

std::vector<RunEvent> events_of(const ShownRun& shown) {
  std::vector<RunEvent> events;
  const RunMetrics& metrics = shown.metrics;
  for (const StepRow& row : metrics.steps) {
    if (row.started && &row != &metrics.steps.front()) {
      const auto start = std::ranges::find_if(
          metrics.starts, [&](const json& entry) { return number_in(entry, "step") == static_cast<double>(row.step); });
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
