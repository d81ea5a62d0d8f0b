#include "train/report/html_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "framework/error.h"
#include "framework/profile/progress.h"
#include "train/run/metrics_lines.h"

namespace ringtrain {

namespace {

using nlohmann::json;

struct Point {
  double x = 0, y = 0;
};

std::string escaped(const std::string& text) {
  std::string html;
  for (const char c : text) {
    switch (c) {
      case '<':
        html += "&lt;";
        break;
      case '>':
        html += "&gt;";
        break;
      case '&':
        html += "&amp;";
        break;
      case '"':
        html += "&quot;";
        break;
      default:
        html += static_cast<unsigned char>(c) < ' ' ? ' ' : c;  // markup has no control characters
    }
  }
  return html;
}

/// The lines of metrics.jsonl by kind; of a step the last line counts.
struct Metrics {
  std::map<std::int64_t, json> steps;
  std::vector<json> evaluations;
  std::int64_t skipped = 0, first_skipped = 0;  // lines that are not understood, and the number of the first

  /// Returns a field of every step that has it as a number.
  std::vector<Point> points(const std::string& field) const {
    std::vector<Point> found;
    for (const auto& [step, line] : steps) {
      if (line.contains(field) && line[field].is_number()) {
        found.push_back({static_cast<double>(step), line[field].get<double>()});
      }
    }
    return found;
  }
};

/// Returns whether what the page goes into has the shape that train gives it.
bool has_shape(const MetricsEntry& entry) {
  if (entry.evaluation) {
    const json results = entry.json.value("results", json());
    return results.is_array() && std::ranges::all_of(results, [](const json& result) {
             return result.is_object() && result.value("context_length", json()).is_number();
           });
  }
  const json ring = entry.json.value("ring", json::object());
  return ring.is_object() && std::ranges::all_of(std::array{"forward", "backward"}, [&](const char* pass) {
           const json one = ring.value(pass, json::object());
           return one.is_object() && one.value("hop_wait_seconds", json::array()).is_array();
         });
}

Metrics read_metrics(const std::string& path) {
  Metrics metrics;
  if (path_exists(path)) {
    std::int64_t number = 0;
    read_metrics_lines(File::open(path, ExitCode::usage), [&](const MetricsLine& line) {
      ++number;
      std::optional<MetricsEntry> entry = parse_metrics_line(line.text);
      if (!entry || !has_shape(*entry)) {
        if (metrics.skipped++ == 0) metrics.first_skipped = number;
      } else if (entry->evaluation) {
        metrics.evaluations.push_back(std::move(entry->json));
      } else {
        entry->json.erase("samples");  // the longest, and not shown
        metrics.steps[entry->step] = std::move(entry->json);
      }
    });
  }
  if (metrics.steps.empty()) {
    fail(ExitCode::usage, "{} holds no training step: name a run's folder, as train --output does", path);
  }
  return metrics;
}

/// Returns a curve over steps, or what else x is: its range at the axes, the last value beside its name, and each
/// point's number as a tooltip (of many points, of some).
std::string curve(const std::string& title, const std::vector<Point>& points, const char* x_name = "step") {
  if (points.empty()) return "";
  constexpr double width = 460, height = 180, left = 72, right = 12, bottom = 26, top = 12;
  const auto [low_x, high_x] = std::ranges::minmax(points, {}, &Point::x);
  const auto [low_y, high_y] = std::ranges::minmax(points, {}, &Point::y);
  const double span_x = std::max(high_x.x - low_x.x, 1.0);
  const double span_y = high_y.y > low_y.y ? high_y.y - low_y.y : std::max(std::abs(low_y.y), 1e-12);
  const auto x = [&, first = low_x.x](double value) {
    return left + (value - first) / span_x * (width - left - right);
  };
  const auto y = [&, least = low_y.y](double value) {
    return height - bottom - (value - least) / span_y * (height - bottom - top);
  };
  std::string line, dots;
  const std::size_t every = std::max<std::size_t>(1, points.size() / 200);
  for (std::size_t i = 0; i < points.size(); ++i) {
    const Point& p = points[i];
    line += fmt::format("{:.1f},{:.1f} ", x(p.x), y(p.y));
    if (i % every != 0 && i + 1 != points.size()) continue;
    dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2.5\"><title>{} {:.0f}: {:.17g}</title></circle>\n",
                        x(p.x), y(p.y), x_name, p.x, p.y);
  }
  std::string svg = fmt::format("<figure><figcaption>{}: {:.6g}</figcaption>\n<svg viewBox=\"0 0 {} {}\">\n",
                                escaped(title), points.back().y, width, height);
  const auto text = [&](double at_x, double at_y, const char* anchor, const std::string& words) {
    svg += fmt::format("<text x=\"{}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", at_x, at_y, anchor, words);
  };
  for (const double value : high_y.y > low_y.y ? std::vector{low_y.y, high_y.y} : std::vector{low_y.y}) {
    svg += fmt::format("<path d=\"M{} {:.1f}H{}\"/>\n", left, y(value), width - right);
    text(left - 8, y(value) + 4, "end", fmt::format("{:.6g}", value));
  }
  text(left, height - 6, "start", fmt::format("{} {:.0f}", x_name, low_x.x));
  if (high_x.x > low_x.x) text(width - right, height - 6, "end", fmt::format("{:.0f}", high_x.x));
  return svg + fmt::format("<polyline points=\"{}\"/>\n{}</svg></figure>\n", line, dots);
}

using Rows = std::vector<std::vector<std::string>>;

/// Returns a table whose first row is its head.
std::string table(const std::string& title, const Rows& rows) {
  std::string html = fmt::format("<h2>{}</h2>\n<table>\n", escaped(title));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    html += "<tr>";
    for (const std::string& cell : rows[i]) html += fmt::format("<{0}>{1}</{0}>", i == 0 ? "th" : "td", escaped(cell));
    html += "</tr>\n";
  }
  return html + "</table>\n";
}

/// Returns a value as it stands in the file.
std::string cell(const json& line, const char* field) {
  if (!line.contains(field) || line[field].is_null()) return "-";
  return line[field].is_string() ? line[field].get<std::string>() : line[field].dump();
}

std::string summary_table(const Metrics& metrics) {
  Rows rows{{"", "first step", "last step"}};
  const json &first = metrics.steps.begin()->second, &last = metrics.steps.rbegin()->second;
  for (const char* field :
       {"step", "time", "tokens", "loss", "grad_norm", "lr", "seconds", "tokens_per_second", "mfu"}) {
    rows.push_back({field, cell(first, field), cell(last, field)});
  }
  return table("Run", rows);
}

/// Returns each rank's peaks, the last that were told, beside what was planned for it.
std::string memory_table(const Metrics& metrics, const std::vector<MemoryUse>& planned) {
  for (auto it = metrics.steps.rbegin(); it != metrics.steps.rend(); ++it) {
    const json peaks = it->second.value("peak_bytes", json());
    if (!peaks.is_array() || peaks.empty() || !peaks[0].is_object()) continue;
    const bool compared = peaks.size() == planned.size();
    Rows rows{{"rank", ""}};
    for (int tag = 0; tag < tag_count; ++tag) rows[0].emplace_back(name_of(static_cast<Tag>(tag)));
    rows[0].emplace_back("total");
    for (std::size_t rank = 0; rank < peaks.size(); ++rank) {
      if (compared) {
        rows.push_back({std::to_string(rank), "planned"});
        for (const std::size_t bytes : planned[rank].by_tag) rows.back().push_back(std::to_string(bytes));
        rows.back().push_back(std::to_string(planned[rank].total));
      }
      rows.push_back({compared ? "" : std::to_string(rank), "peak"});
      for (std::size_t i = 2; i < rows[0].size(); ++i) rows.back().push_back(cell(peaks[rank], rows[0][i].c_str()));
    }
    return table("Memory in bytes", rows);
  }
  return "";
}

/// Returns the waits of the last step that has them, a row for each hop.
std::string ring_table(const Metrics& metrics) {
  for (auto it = metrics.steps.rbegin(); it != metrics.steps.rend(); ++it) {
    const json ring = it->second.value("ring", json());
    if (!ring.is_object()) continue;
    const auto pass = [&](const char* name) { return ring.value(name, json::object()); };
    const json forward = pass("forward").value("hop_wait_seconds", json::array()),
               backward = pass("backward").value("hop_wait_seconds", json::array());
    Rows rows{{"", "forward", "backward"}};
    rows.push_back(
        {"time imbalance", cell(pass("forward"), "time_imbalance"), cell(pass("backward"), "time_imbalance")});
    for (std::size_t hop = 0; hop < std::max(forward.size(), backward.size()); ++hop) {
      const auto seconds = [&](const json& waits) { return hop < waits.size() ? waits[hop].dump() : "-"; };
      const bool end = hop + 1 == std::max(forward.size(), backward.size());
      rows.push_back({end ? "waited at the end, s" : fmt::format("waited for hop {}, s", hop), seconds(forward),
                      seconds(backward)});
    }
    return table(fmt::format("The ring in step {}", it->first), rows);
  }
  return "";
}

std::string evaluation_part(const Metrics& metrics) {
  if (metrics.evaluations.empty()) return "";
  Rows rows{{"step", "context", "nll", "perplexity", "bits per byte", "95 % of nll"}};
  std::vector<Point> last;
  for (const json& line : metrics.evaluations) {
    last.clear();
    for (const json& result : line["results"]) {
      rows.push_back({line["step"].dump(), cell(result, "context_length"), cell(result, "nll"),
                      cell(result, "perplexity"), cell(result, "bits_per_byte"), cell(result, "ci95")});
      if (result.contains("context_length") && result.contains("nll") && result["nll"].is_number()) {
        last.push_back({result["context_length"].get<double>(), result["nll"].get<double>()});
      }
    }
  }
  return table("Evaluation", rows) + curve("Negative log-likelihood by context, last evaluation", last, "context");
}

}  // namespace

RunReport html_report(const std::string& folder, const std::vector<MemoryUse>& planned) {
  const std::string path = folder + "/metrics.jsonl";
  const Metrics metrics = read_metrics(path);
  RunReport report;
  if (metrics.skipped > 0) {
    report.warning =
        fmt::format("{}:{}: {} no metrics of a run, and left out of the page", path, metrics.first_skipped,
                    metrics.skipped == 1 ? std::string("this line is")
                                         : fmt::format("this line and {} after it are", metrics.skipped - 1));
  }
  std::string html =
      std::string(report_head) + "<head><meta charset=\"utf-8\"/>\n<title>" + escaped(folder) +
      "</title>\n<style>body{font:14px/1.4 sans-serif;max-width:62em;margin:2em auto;padding:0 1em;color:#222}"
      "h1{font-size:1.5em}h2{font-size:1.1em;margin:2em 0 .5em}figure{display:inline-block;width:29.5em;max-width:100%;"
      "margin:1em .5em 0 0}figcaption{font-weight:bold}table{border-collapse:collapse;"
      "font-variant-numeric:tabular-nums}td,th{padding:.2em .8em;text-align:right;border-bottom:1px solid #ddd}"
      "td:first-child{text-align:left}text{font-size:11px;fill:#666}path{stroke:#ddd}circle{fill:#27c}"
      "polyline{fill:none;stroke:#27c;stroke-width:1.5}</style></head>\n<body>\n<h1>" +
      escaped(folder) + "</h1>\n" + (report.warning.empty() ? "" : "<p>" + escaped(report.warning) + ".</p>\n") +
      summary_table(metrics) + "<h2>Curves, and their last values</h2>\n";
  struct Curve {
    const char *title, *field;
  };
  for (const Curve& one :
       {Curve{"Loss, nats a token", "loss"}, Curve{"Gradient norm", "grad_norm"}, Curve{"Learning rate", "lr"},
        Curve{"Tokens a second", "tokens_per_second"}, Curve{"Model FLOP utilisation, of the peak", "mfu"},
        Curve{"Loss, standard deviations from steps before", "loss_z"},
        Curve{"Gradient norm, standard deviations likewise", "grad_norm_z"},
        Curve{"Seconds that rank 0 waited for the ring", "ring_wait_seconds"}}) {
    html += curve(one.title, metrics.points(one.field));
  }
  html += memory_table(metrics, planned) + ring_table(metrics) + evaluation_part(metrics);
  report.page = html + "</body></html>\n";
  return report;
}

}  // namespace ringtrain
