#include "extras/extend/extension_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "extras/report/chart.h"
#include "extras/report/page_parts.h"
#include "framework/counted.h"
#include "framework/storage/strict_json.h"
#include "train/evaluation/evaluation_report.h"
#include "train/run/metrics_lines.h"

namespace ringtrain {

namespace {

using nlohmann::json;

/// The nll of an evaluation's targets: by context length, then by document.
using Sums = std::map<std::int64_t, std::map<std::int64_t, DocumentSum>>;

struct Evaluation {  // NOLINT(bugprone-exception-escape): json's move constructor does not throw
  json results;      // the output of evaluate --output
  Sums sums;         // of the output of evaluate --per-token
};
using Evaluations = std::map<std::string, Evaluation>;

Evaluation read_evaluation(const std::string& path) {
  Evaluation read{parse_strict_json(read_file(path + ".json", ExitCode::usage)), {}};
  read_metrics_lines(File::open(path + ".jsonl", ExitCode::usage), [&](const MetricsLine& line) {
    if (line.begin == 0) return;  // a header that describes the other lines
    const json token = parse_strict_json(line.text);
    const double weight = token.at("weight"), nll = token.at("nll");
    DocumentSum& sum = read.sums[token.at("context_length")][token.at("document")];
    sum = {token.at("document"), sum.sum + weight * nll, sum.weight + weight};
  });
  return read;
}

/// One side of a comparison.
struct Side {
  const Evaluation& evaluation;
  std::int64_t length;
};

/// Returns whether the second is at most `bound` worse than the first, on the same targets, as a row of two cells.
std::vector<std::string> verdict(const std::string& what, double bound, const Side& first, const Side& second) {
  if (first.evaluation.results.at("target_hash") != second.evaluation.results.at("target_hash")) {
    return {what, "not compared, because the targets differ"};
  }
  std::vector<DocumentSum> changes;
  for (const auto& [document, before] : first.evaluation.sums.at(first.length)) {
    const DocumentSum& after = second.evaluation.sums.at(second.length).at(document);
    changes.push_back({document, after.sum - before.sum, before.weight});
  }
  const Estimate change = estimate_over(changes);
  std::string text = fmt::format("{:+.4f} nats, must be at most {:+.2f}", change.value, bound);
  if (std::ssize(changes) >= min_documents) {
    return {what, fmt::format("{}, 95% CI [{:+.4f}, {:+.4f}]: {}", text, change.ci95.low, change.ci95.high,
                              change.ci95.high <= bound ? "holds" : "DOES NOT HOLD")};
  }
  text += change.value <= bound ? ": within the bound, but on " : ": above the bound, but on ";
  return {what, text + json_text(first.evaluation.results.at("target_tokens")) + " targets of " +
                    counted(std::ssize(changes), "document") + " this says little"};
}

Rows verdicts(const Evaluations& evaluations, std::int64_t to) {
  return {verdict(fmt::format("nll of the extended model at {} tokens minus at {}", to, to / 2), 0.02,
                  {evaluations.at("after"), to / 2}, {evaluations.at("after"), to}),
          verdict(fmt::format("nll at {} tokens, extended model minus original", to / 8), 0.03,
                  {evaluations.at("before-short"), to / 8}, {evaluations.at("after-short"), to / 8}),
          verdict(fmt::format("nll at {} tokens, extended model minus scaled but untrained", to), 0,
                  {evaluations.at("scaled"), to}, {evaluations.at("after"), to})};
}

std::string curves(const Evaluations& evaluations, std::int64_t from, std::int64_t to) {
  constexpr double first = 64;  // the few earlier positions would compress the others
  Chart chart{.title = "nll by position",
              .unit = fmt::format("nats per token, in windows of {}; the model was trained for {}", to, from),
              .x_name = "position",
              .log_x = true};
  for (const char* const name : {"before", "scaled", "after"}) {
    const json& longest = evaluations.at(name).results.at("results").back();
    chart.series.push_back({name, {}});
    for (const json& bucket : longest.at("by_position")) {
      if (bucket.at("last") >= first) chart.series.back().points.push_back({bucket.at("last"), bucket.at("nll")});
    }
  }
  return chart_figure(chart);
}

/// Returns the mean nll of an evaluation's needles at a context length; "-" if it has none.
std::string needles_text(const json& results, const json& length) {
  double sum = 0, count = 0;
  for (const json& cell : results.value(json::json_pointer("/tasks/results/0/cells"), json::array())) {
    if (cell.at("context_length") != length) continue;
    sum += cell.at("trials").get<double>() * cell.at("nll").get<double>();
    count += cell.at("trials").get<double>();
  }
  return count > 0 ? fmt::format("{:.4f}", sum / count) : "-";
}

/// Returns a table for each set of targets: a row for each context length and model.
std::string length_tables(const Evaluations& evaluations) {
  std::map<std::string, Rows> tables;  // by the description of the targets
  for (const std::string name : evaluation_names) {
    const json& results = evaluations.at(name).results;
    const std::string targets = fmt::format(
        "{} targets in {} of {}; their hash is {}", json_text(results.at("target_tokens")),
        counted(results.at("target_blocks").get<std::int64_t>(), "window"),
        counted(results.at("documents").get<std::int64_t>(), "document"), results.at("target_hash").get<std::string>());
    Rows& rows = tables.try_emplace(targets, Rows{{"context", "model", "nll", "needles"}}).first->second;
    for (const json& result : results.at("results")) {
      const json& length = result.at("context_length");
      rows.push_back({json_text(length), name.substr(0, name.find('-')),
                      fmt::format("{:.4f}", result.at("nll").get<double>()), needles_text(results, length)});
    }
  }
  std::string html = heading("nll by context");
  for (auto& [targets, rows] : tables) {
    std::stable_sort(rows.begin() + 1, rows.end(),
                     [](const auto& a, const auto& b) { return std::stoll(a[0]) < std::stoll(b[0]); });
    html += table(rows) + remark(targets);
  }
  return html;
}

}  // namespace

ExtensionPage extension_page(const std::string& folder, std::int64_t from, std::int64_t to,
                             const std::vector<std::vector<std::string>>& facts) {
  try {
    Evaluations evaluations;
    for (const std::string name : evaluation_names) evaluations[name] = read_evaluation(folder + "/" + name);
    const std::string title = fmt::format("From {} to {} tokens", from, to);
    Rows rows = facts;
    std::string text;
    for (const std::vector<std::string>& row : verdicts(evaluations, to)) {
      text += row[0] + ": " + row[1] + "\n";
      rows.push_back(row);
    }
    return {page_head("<!DOCTYPE html>\n<html lang=\"en\" data-written-by=\"ringtrain extend\">", title) + "<h1>" +
                title + "</h1>\n" + table(rows, "facts") + figure_grid(curves(evaluations, from, to)) +
                length_tables(evaluations) + "</body></html>\n",
            text};
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    fail(ExitCode::usage, "{}: its evaluations do not have the form that evaluate writes: {}", folder, error.what());
  }
}

}  // namespace ringtrain
