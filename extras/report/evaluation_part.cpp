// Evaluations on a page: the last one by context length with its intervals, paired changes, and the history of each
// length. For a file of `evaluate --output`, which has more: curves by position, also of another model, and tables of
// tasks.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "extras/report/page_parts.h"
#include "extras/report/shown_run.h"
#include "framework/counted.h"
#include "framework/storage/strict_json.h"
#include "train/run/metrics_lines.h"

namespace ringtrain {

namespace {

using nlohmann::json;

constexpr std::size_t most_lengths = 8;  // curves of a chart
constexpr std::size_t most_cells = 200;  // of a task: a page is at most 1 MB

/// Returns whether an evaluation has enough documents for intervals.
bool has_intervals(const json& evaluation) {
  return evaluation.value("interval_meaningful", json(true)) == true;
}

/// Returns a member that is a list; an empty one if it is missing. Throws json::exception if it is not a list.
json::array_t list_in(const json& object, const char* name) {
  return object.value(name, json::array_t());
}

/// Returns the two ends of an interval; NaN if the object has no such pair of numbers, or intervals are not meaningful.
std::pair<double, double> interval_in(const json& object, const char* name, bool meaningful) {
  const json found = object.value(name, json());
  if (!meaningful || !found.is_array() || found.size() != 2 || !found[0].is_number() || !found[1].is_number()) {
    return {std::nan(""), std::nan("")};
  }
  return {found[0].get<double>(), found[1].get<double>()};
}

std::string interval_text(const json& object, const char* name, bool meaningful) {
  const auto [low, high] = interval_in(object, name, meaningful);
  return std::isfinite(low) && std::isfinite(high) ? fmt::format("{} to {}", four_digits(low), four_digits(high)) : "-";
}

std::string length_name(const json& object) {
  return fmt::format("{:.0f}", number_in(object, "context_length"));
}

/// Returns the values of a list's objects by one of their numbers, which must be positive, ascending.
std::vector<ChartPoint> points_in(const json& list, const char* x_name, const char* value, const char* interval,
                                  bool meaningful) {
  std::vector<ChartPoint> points;
  for (const json& item : list) {
    const double x = number_in(item, x_name), y = number_in(item, value);
    if (!(x > 0) || !std::isfinite(y)) continue;
    const auto [low, high] = interval_in(item, interval, meaningful);
    points.push_back({x, y, low, high});
  }
  std::ranges::sort(points, {}, &ChartPoint::x);
  return points;
}

/// Returns the values of an evaluation by context length, with their intervals if those are meaningful.
std::vector<ChartPoint> by_length(const json& evaluation, const char* value, const char* interval) {
  return points_in(list_in(evaluation, "results"), "context_length", value, interval, has_intervals(evaluation));
}

/// Returns the chart of each length's evaluations over the course of training.
Chart over_steps(const ShownRun& shown) {
  Chart chart{.title = "Negative log-likelihood", .unit = "nats per token, by step and context"};
  std::map<double, ChartSeries> lengths;
  for (const json& line : shown.metrics.evaluations) {
    for (const ChartPoint& point : by_length(line, "nll", "ci95")) {
      ChartSeries& series = lengths[point.x];
      series.name = fmt::format("{:.0f} tokens", point.x);
      series.points.push_back({number_in(line, "step"), point.y});
    }
  }
  for (auto& [length, series] : lengths) chart.series.push_back(std::move(series));
  return chart;
}

/// Returns an evaluation's table by context length, with a note that begins with these words.
std::string length_table(const json& evaluation, std::string words) {
  const bool meaningful = has_intervals(evaluation);
  Rows rows{{"context", "perplexity", "nll", "95% CI of nll", "bits per byte", "change", "95% CI of change"}};
  for (const json& result : list_in(evaluation, "results")) {
    rows.push_back({length_name(result), four_digits(number_in(result, "perplexity")),
                    four_digits(number_in(result, "nll")), interval_text(result, "ci95", meaningful),
                    four_digits(number_in(result, "bits_per_byte")), signed_digits(number_in(result, "delta_nll")),
                    interval_text(result, "delta_ci95", meaningful)});
  }
  if (const double documents = number_in(evaluation, "documents"); documents > 0) {
    words += fmt::format("; {} target tokens of {} documents", four_digits(number_in(evaluation, "target_tokens")),
                         four_digits(documents));
  }
  if (!meaningful) words += "; too few documents for intervals";
  return table(rows) + remark(words + ".");
}

/// Returns a chart of all lengths' buckets of positions; "" if they have none.
std::string position_chart(const json& results, const std::string& title, const char* value, const char* interval,
                           bool meaningful, bool zero = false) {
  Chart chart{.title = title,
              .unit = "nats per token, by the number of tokens before it",
              .x_name = "position",
              .log_x = true,
              .zero = zero};
  for (const json& row : results) {
    if (chart.series.size() == most_lengths) break;
    chart.series.push_back(
        {length_name(row) + " tokens", points_in(list_in(row, "by_position"), "last", value, interval, meaningful)});
  }
  return chart_figure(chart);
}

/// Returns a task's right answers in %, with one row per context length and one column per depth of the needle.
std::string task_table(const json& task, const json::array_t& depths) {
  Rows rows{{"context"}};
  for (const json& depth : depths) rows[0].push_back(fmt::format("{:.0f}%", 100 * depth.get<double>()));
  const json::array_t cells = list_in(task, "cells");
  for (const json& cell : cells) {
    const std::string length = length_name(cell);
    if (rows.back()[0] != length) rows.emplace_back(rows[0].size(), "-")[0] = length;
    const auto column = std::ranges::find(depths, cell.value("depth", json())) - depths.begin();
    if (column == std::ssize(depths)) continue;
    rows.back()[1 + static_cast<std::size_t>(column)] = fmt::format("{:.0f}", 100 * number_in(cell, "accuracy"));
  }
  const std::string too_many = remark(fmt::format("{} cells are too many to show.", cells.size()));
  return fmt::format("<figure><figcaption><b>{}</b></figcaption>\n{}</figure>\n", escaped(text_in(task, "task")),
                     cells.size() > most_cells ? too_many : table(rows, "heat"));
}

std::string tasks_part(const json& tasks) {
  std::string tables;
  for (const json& task : list_in(tasks, "results")) tables += task_table(task, list_in(tasks, "depths"));
  return heading("Long-context tasks") +
         remark(fmt::format("Correct answers in %, by context length and depth of the needle. Chance is {:.3g}%: the "
                            "answer is the likeliest of {} candidates.",
                            100 * number_in(tasks, "chance"), json_text(tasks.value("candidates", json())))) +
         figure_grid(tables);
}

/// Returns the part for a file of `evaluate --output`: its table, and what the metrics of a run do not have.
std::string file_part(const std::string& path, const json& evaluation) {
  const bool meaningful = has_intervals(evaluation);
  std::string figures =
      position_chart(list_in(evaluation, "results"), "Negative log-likelihood by position", "nll", "ci95", meaningful);
  if (evaluation.contains("against")) {
    const json results = list_in(evaluation["against"], "results");
    const std::string other = " from " + text_in(evaluation["against"], "checkpoint");
    figures += position_chart(results, "Difference of nll" + other, "difference_nll", "difference_ci95", meaningful,
                              /*zero=*/true);
    figures += position_chart(results, "KL divergence" + other, "kl", "kl_ci95", meaningful, /*zero=*/true);
  }
  return heading("Evaluated") + figure_grid(figures) +
         length_table(evaluation, path + ": " + text_in(evaluation, "checkpoint")) +
         (evaluation.contains("tasks") ? tasks_part(evaluation["tasks"]) : "");
}

}  // namespace

std::vector<ChartPoint> last_by_length(const ShownRun& shown, const char* value, const char* interval) {
  const std::vector<json>& evaluations = shown.metrics.evaluations;
  return evaluations.empty() ? std::vector<ChartPoint>{} : by_length(evaluations.back(), value, interval);
}

std::string evaluation_part(const ShownRuns& runs) {
  Chart level{.title = "Negative log-likelihood",
              .unit = "nats per token, by context; last evaluation",
              .x_name = "context",
              .log_x = true};
  Chart change{.title = "Change from the shortest context",
               .unit = "nats per token, paired by document",
               .x_name = "context",
               .log_x = true,
               .zero = true};
  std::string tables, files;
  for (const ShownRun& shown : runs) {
    const std::vector<json>& evaluations = shown.metrics.evaluations;
    level.series.push_back({runs.size() > 1 ? shown.name : "", last_by_length(shown, "nll", "ci95")});
    change.series.push_back({level.series.back().name, last_by_length(shown, "delta_nll", "delta_ci95")});
    if (change.series.back().points.size() < 2) change.series.back().points.clear();
    if (!shown.evaluation_path.empty()) files += file_part(shown.evaluation_path, shown.evaluation);
    if (evaluations.empty()) continue;
    tables += length_table(evaluations.back(), fmt::format("{}: step {}, the last of {} so far", shown.name,
                                                           json_text(evaluations.back()["step"]),
                                                           counted(std::ssize(evaluations), "evaluation")));
  }
  if (tables.empty()) return files;
  std::string figures = chart_figure(level) + chart_figure(change);
  if (runs.size() == 1 && runs[0].metrics.evaluations.size() > 1) figures += chart_figure(over_steps(runs[0]));
  return heading("Evaluation") + figure_grid(figures) + tables + files;
}

}  // namespace ringtrain
