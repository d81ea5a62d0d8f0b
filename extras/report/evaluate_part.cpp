#include "extras/report/evaluate_part.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "extras/report/chart.h"
#include "extras/report/heat_map.h"
#include "extras/report/page_parts.h"
#include "extras/report/shown_run.h"
#include "framework/storage/strict_json.h"

namespace ringtrain {

namespace {

using nlohmann::json;

constexpr std::size_t most_lengths = 8;  // curves of a chart
constexpr std::size_t most_cells = 200;  // of a heat map: a page has at most 1 MB

/// Returns a list that is a member; an empty one if it is not there.
json list_in(const json& object, const char* name) {
  const json found = object.value(name, json::array());
  if (!found.is_array()) throw std::runtime_error(std::string(name) + " is no list");
  return found;
}

/// Returns a chart of all lengths' buckets of positions.
Chart position_chart(const json& rows, const char* title, const char* unit, const char* value, const char* interval,
                     bool meaningful) {
  Chart chart{.title = title, .unit = unit, .x_name = "position", .log_x = true};
  for (const json& row : rows) {
    if (chart.series.size() == most_lengths) break;
    chart.series.push_back(
        {length_name(row) + " tokens", points_in(list_in(row, "by_position"), "last", value, interval, meaningful)});
  }
  return chart;
}

std::string base_part(const json& evaluation, bool meaningful) {
  const json results = list_in(evaluation, "results");
  const std::string figure =
      chart_figure(position_chart(results, "Negative log-likelihood by position",
                                  "nats a token, by the tokens before it", "nll", "ci95", meaningful));
  return (figure.empty() ? "" : "<div class=\"charts\">\n" + figure + "</div>\n") +
         table(length_rows(results, meaningful));
}

std::string against_part(const json& against, bool meaningful) {
  const json results = list_in(against, "results");
  Rows rows{{"context", "its nll", "difference", "95% of difference", "KL", "95% of KL"}};
  for (const json& result : results) {
    rows.push_back({length_name(result), four_digits(number_in(result, "against_nll")),
                    signed_digits(number_in(result, "difference_nll")),
                    interval_text(interval_in(result, "difference_ci95", meaningful)),
                    four_digits(number_in(result, "kl")), interval_text(interval_in(result, "kl_ci95", meaningful))});
  }
  Chart difference = position_chart(results, "Difference of nll by position", "nats a token, paired by document",
                                    "difference_nll", "difference_ci95", meaningful);
  difference.zero = true;
  Chart kl = position_chart(results, "KL divergence by position", "nats a token", "kl", "kl_ci95", meaningful);
  kl.zero = true;
  const std::string figures = chart_figure(difference) + chart_figure(kl);
  return heading("Against another model") +
         fmt::format(
             "<p>{}, on the same targets: difference is the checkpoint's nll minus its; KL is how far the checkpoint's "
             "predictions lie from its, in nats a target.</p>\n",
             escaped(text_in(against, "checkpoint"))) +
         (figures.empty() ? "" : "<div class=\"charts\">\n" + figures + "</div>\n") + table(rows);
}

std::string longppl_part(const json& longppl) {
  const auto number = [&](const char* name) { return four_digits(number_in(longppl, name)); };
  const auto setting = [&](const char* name) { return json_text(longppl.value(name, json())); };
  const char* const whose = longppl.value("own_contrast", json()) == true ? "this model itself" : "another model";
  return heading("LongPPL") +
         table({{"", ""},
                {"LongPPL, the perplexity of key tokens", number("longppl")},
                {"key tokens", number("n_key_token")},
                {"perplexity of all tokens", number("ppl")},
                {"tokens", number("n_token")},
                {"key by the contrast of", fmt::format("{}: {}", whose, text_in(longppl, "evaluator"))},
                {"trunc_len, sliding_window, alpha, beta",
                 fmt::format("{}, {}, {}, {}", setting("trunc_len"), setting("sliding_window"), setting("alpha"),
                             setting("beta"))}},
               "facts");
}

/// Returns a task's cells as a map, of what they call `value`.
HeatMap task_map(const json& task, const json& depths, const char* value, std::string unit) {
  HeatMap map{.title = text_in(task, "task"), .unit = std::move(unit)};
  for (const json& depth : depths) {
    map.columns.push_back(fmt::format("{:.0f}%", 100 * (depth.is_number() ? depth.get<double>() : std::nan(""))));
  }
  if (list_in(task, "cells").size() > most_cells) return map;
  for (const json& cell : list_in(task, "cells")) {
    const auto column =
        static_cast<std::size_t>(std::ranges::find(depths, cell.value("depth", json())) - depths.begin());
    if (column == depths.size()) continue;
    const std::string row = length_name(cell);
    if (map.rows.empty() || map.rows.back() != row) {
      map.rows.push_back(row);
      map.values.emplace_back(depths.size(), std::nan(""));
    }
    map.values.back()[column] = number_in(cell, value);
  }
  return map;
}

std::string tasks_part(const json& tasks) {
  const json depths = list_in(tasks, "depths");
  const double chance = number_in(tasks, "chance");
  Rows rows{{"task", "right", "chance", "deviations from it", "nll of the answers", "answers"}};
  std::string figures;
  for (const json& task : list_in(tasks, "results")) {
    rows.push_back({text_in(task, "task"), four_digits(number_in(task, "accuracy")), four_digits(chance),
                    signed_digits(number_in(task, "deviations_from_chance")), four_digits(number_in(task, "nll")),
                    four_digits(number_in(task, "trials"))});
    HeatMap right = task_map(task, depths, "accuracy", "right answers in %, by context and depth");
    for (auto& row : right.values) {
      for (double& value : row) value = std::round(100 * value);
    }
    right.high = 100;
    figures += heat_map_figure(right);
    if (text_in(task, "task") != "single") continue;
    HeatMap nll = task_map(task, depths, "nll", "nll of the answer's tokens, by context and depth");
    nll.high = 0;
    for (auto& row : nll.values) {
      for (double& value : row) {
        value = std::round(1000 * value) / 1000;
        if (std::isfinite(value)) nll.high = std::max(nll.high, value);
      }
    }
    if (nll.high == 0) nll.high = 1;
    figures += heat_map_figure(nll);
  }
  const std::string note =
      fmt::format("Chance is {:.3g}%: the likeliest of {} candidates. Columns: the needle's depth.", 100 * chance,
                  json_text(tasks.value("candidates", json())));
  return heading("Long-context tasks") + "<p class=\"soft\">" + escaped(note) + "</p>\n<div class=\"charts\">\n" +
         figures + "</div>\n" + table(rows);
}

}  // namespace

std::string evaluate_part(const std::string& path, const json& evaluation) {
  const bool meaningful = evaluation.value("interval_meaningful", json(true)) == true;
  std::string note = fmt::format("{}: {}, {} documents scored ({})", path, text_in(evaluation, "checkpoint"),
                                 json_text(evaluation.value("documents", json())), text_in(evaluation, "part"));
  if (!meaningful) note += ", too few for intervals";
  std::string html = heading("Evaluated") + "<p class=\"soft\">" + escaped(note) + ".</p>\n";
  html += base_part(evaluation, meaningful);
  if (evaluation.contains("against")) html += against_part(evaluation["against"], meaningful);
  if (evaluation.contains("longppl")) html += longppl_part(evaluation["longppl"]);
  if (evaluation.contains("tasks")) html += tasks_part(evaluation["tasks"]);
  return html;
}

}  // namespace ringtrain
