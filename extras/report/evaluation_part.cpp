// Evaluations on a page: the last one by context length with its intervals, paired changes, and how each length went.
#include <fmt/format.h>

#include <cmath>
#include <map>

#include "extras/report/page_parts.h"
#include "extras/report/shown_run.h"
#include "framework/counted.h"
#include "framework/storage/strict_json.h"

namespace ringtrain {

namespace {

using nlohmann::json;

/// Returns whether an evaluation has documents enough for intervals.
bool has_intervals(const json& line) {
  return line.value("interval_meaningful", json(true)) == true;
}

std::string evaluation_charts(const ShownRuns& runs) {
  Chart level{.title = "Negative log-likelihood",
              .unit = "nats a token, by context; last evaluation",
              .x_name = "context",
              .log_x = true};
  Chart change{.title = "Change from the shortest context",
               .unit = "nats a token, paired by document",
               .x_name = "context",
               .log_x = true,
               .zero = true};
  Chart over{.title = "Negative log-likelihood", .unit = "nats a token, by step and context"};
  for (const ShownRun& shown : runs) {
    const std::string name = runs.size() > 1 ? shown.name : "";
    level.series.push_back({name, {}});
    change.series.push_back({name, {}});
    if (shown.metrics.evaluations.empty()) continue;
    const json& last = shown.metrics.evaluations.back();
    level.series.back().points = by_length(last, "nll", "ci95");
    change.series.back().points = by_length(last, "delta_nll", "delta_ci95");
    if (change.series.back().points.size() < 2) change.series.back().points.clear();
    if (runs.size() > 1 || shown.metrics.evaluations.size() < 2) continue;
    std::map<double, ChartSeries> lengths;
    for (const json& line : shown.metrics.evaluations) {
      for (const ChartPoint& point : by_length(line, "nll", "ci95")) {
        ChartSeries& series = lengths[point.x];
        series.name = fmt::format("{:.0f} tokens", point.x);
        series.points.push_back({number_in(line, "step"), point.y});
      }
    }
    for (auto& [length, series] : lengths) over.series.push_back(std::move(series));
  }
  return "<div class=\"charts\">\n" + chart_figure(level) + chart_figure(change) + chart_figure(over) + "</div>\n";
}

std::string evaluation_table(const ShownRun& shown) {
  const json& last = shown.metrics.evaluations.back();
  const bool meaningful = has_intervals(last);
  std::string note = fmt::format("After step {}, of {} by now", json_text(last["step"]),
                                 counted(std::ssize(shown.metrics.evaluations), "evaluation"));
  if (const double documents = number_in(last, "documents"); documents > 0) {
    note += fmt::format("; {} target tokens of {} documents", four_digits(number_in(last, "target_tokens")),
                        four_digits(documents));
  }
  if (!meaningful) note += "; too few documents for intervals";
  return table(length_rows(last["results"], meaningful)) + "<p class=\"soft\">" + escaped(note) + ".</p>\n";
}

}  // namespace

std::vector<ChartPoint> by_length(const json& line, const char* value, const char* interval) {
  return points_in(line["results"], "context_length", value, interval, has_intervals(line));
}

std::string evaluation_part(const ShownRuns& runs) {
  std::string tables;
  for (const ShownRun& shown : runs) {
    if (shown.metrics.evaluations.empty()) continue;
    if (runs.size() > 1) tables += "<p><b>" + escaped(shown.name) + "</b></p>\n";
    tables += evaluation_table(shown);
  }
  return tables.empty() ? "" : heading("Evaluation") + evaluation_charts(runs) + tables;
}

}  // namespace ringtrain
