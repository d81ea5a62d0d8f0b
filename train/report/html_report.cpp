#include "train/report/html_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

#include "framework/error.h"
#include "framework/profile/progress.h"

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
        html += c;
    }
  }
  return html;
}

/// The lines of metrics.jsonl by kind; of a step the last line counts.
struct Metrics {
  std::map<std::int64_t, json> steps;
  std::vector<json> evaluations;

  /// Return a field of every step that has it as a number.
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

Metrics read_metrics(const std::string& folder) {
  const std::string path = folder + "/metrics.jsonl";
  Metrics metrics;
  std::ifstream stream(path);
  for (std::string text; std::getline(stream, text);) {
    json line = json::parse(text, nullptr, /*allow_exceptions=*/false);
    if (!line.is_object() || !line.contains("step") || !line["step"].is_number_integer()) continue;
    const std::int64_t step = line["step"];
    if (line.value("kind", json()) == "train") {
      metrics.steps[step] = std::move(line);
    } else if (line.contains("results") && line["results"].is_array()) {
      metrics.evaluations.push_back(std::move(line));
    }
  }
  if (metrics.steps.empty()) {
    fail(ExitCode::usage, "{} holds no training step: name a run's folder, as train --output does", path);
  }
  return metrics;
}

/// Return a curve with its range at the axes, and each point's number as a tooltip (of many points, of some).
std::string curve(const std::string& title, const std::vector<Point>& points) {
  if (points.empty()) return "";
  constexpr double width = 640, height = 200, left = 80, bottom = 24, top = 8;
  const auto [low_x, high_x] = std::ranges::minmax(points, {}, &Point::x);
  const auto [low_y, high_y] = std::ranges::minmax(points, {}, &Point::y);
  const double span_x = std::max(high_x.x - low_x.x, 1.0);
  const double span_y = high_y.y > low_y.y ? high_y.y - low_y.y : std::max(std::abs(low_y.y), 1e-12);
  const auto x = [&, first = low_x.x](const Point& p) { return left + (p.x - first) / span_x * (width - left - 8); };
  const auto y = [&, least = low_y.y](const Point& p) {
    return height - bottom - (p.y - least) / span_y * (height - bottom - top);
  };
  std::string line, dots;
  const std::size_t every = std::max<std::size_t>(1, points.size() / 200);
  for (std::size_t i = 0; i < points.size(); ++i) {
    const Point& p = points[i];
    line += fmt::format("{:.1f},{:.1f} ", x(p), y(p));
    if (i % every != 0 && i + 1 != points.size()) continue;
    dots += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2\"><title>step {:.0f}: {:.17g}</title></circle>\n",
                        x(p), y(p), p.x, p.y);
  }
  std::string svg =
      fmt::format("<h2>{}</h2>\n<svg viewBox=\"0 0 {} {}\" width=\"{}\">\n", escaped(title), width, height, width);
  svg += fmt::format("<polyline fill=\"none\" stroke=\"#27c\" points=\"{}\"/>\n{}", line, dots);
  const auto text = [&](double at_x, double at_y, const char* anchor, double value) {
    svg += fmt::format("<text x=\"{}\" y=\"{}\" text-anchor=\"{}\">{:.6g}</text>\n", at_x, at_y, anchor, value);
  };
  text(left - 6, top + 8, "end", high_y.y);
  text(left - 6, height - bottom, "end", low_y.y);
  text(left, height - 6, "start", low_x.x);
  text(width - 8, height - 6, "end", high_x.x);
  return svg + "</svg>\n";
}

using Rows = std::vector<std::vector<std::string>>;

/// Return a table whose first row is its head.
std::string table(const std::string& title, const Rows& rows) {
  std::string html = fmt::format("<h2>{}</h2>\n<table>\n", escaped(title));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    html += "<tr>";
    for (const std::string& cell : rows[i]) html += fmt::format("<{0}>{1}</{0}>", i == 0 ? "th" : "td", escaped(cell));
    html += "</tr>\n";
  }
  return html + "</table>\n";
}

/// Return a number as it stands in the file.
std::string cell(const json& line, const char* field) {
  return line.contains(field) && !line[field].is_null() ? line[field].dump() : "-";
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

std::string memory_table(const Metrics& metrics) {
  for (const auto& [step, line] : metrics.steps) {
    if (!line.contains("peak_bytes") || !line["peak_bytes"].is_array() || line["peak_bytes"].empty()) continue;
    const json& ranks = line["peak_bytes"];
    Rows rows{{"rank"}};
    for (const auto& [tag, bytes] : ranks[0].items()) rows[0].push_back(tag);
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      rows.push_back({std::to_string(rank)});
      for (const auto& [tag, bytes] : ranks[rank].items()) rows.back().push_back(bytes.dump());
    }
    return table("Memory at its peak, bytes by rank (planned, and allocated to the byte)", rows);
  }
  return "";
}

/// Return the waits of the last step that has them.
std::string ring_table(const Metrics& metrics) {
  for (auto it = metrics.steps.rbegin(); it != metrics.steps.rend(); ++it) {
    if (!it->second.contains("ring") || !it->second["ring"].is_object()) continue;
    const json& ring = it->second["ring"];
    Rows rows{{"pass", "time imbalance", "seconds waited, by hop; the last: the pass's end"}};
    for (const char* pass : {"forward", "backward"}) {
      if (!ring.contains(pass)) continue;
      rows.push_back({pass, cell(ring[pass], "time_imbalance"), cell(ring[pass], "hop_wait_seconds")});
    }
    return table(fmt::format("The ring in step {}", it->first), rows);
  }
  return "";
}

std::string evaluation_table(const Metrics& metrics) {
  if (metrics.evaluations.empty()) return "";
  Rows rows{{"step", "context", "nll", "perplexity", "bits per byte", "95 % of nll"}};
  for (const json& line : metrics.evaluations) {
    for (const json& result : line["results"]) {
      rows.push_back({line["step"].dump(), cell(result, "context_length"), cell(result, "nll"),
                      cell(result, "perplexity"), cell(result, "bits_per_byte"), cell(result, "ci95")});
    }
  }
  return table("Evaluation", rows);
}

}  // namespace

std::string html_report(const std::string& folder) {
  const Metrics metrics = read_metrics(folder);
  std::string html =
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<title>" + escaped(folder) +
      "</title>\n<style>body{font:14px sans-serif;max-width:60em;margin:2em auto}text{font-size:11px}"
      "td,th{padding:.2em .8em;text-align:right}svg{border:1px solid #ccc}</style></head>\n<body>\n<h1>" +
      escaped(folder) + "</h1>\n";
  html += summary_table(metrics);
  struct Curve {
    const char *title, *field;
  };
  for (const Curve& one :
       {Curve{"Loss, nats a token", "loss"}, Curve{"Gradient norm", "grad_norm"}, Curve{"Learning rate", "lr"},
        Curve{"Tokens a second", "tokens_per_second"}, Curve{"Model FLOP utilisation, of the peak", "mfu"},
        Curve{"Loss: standard deviations from the steps before", "loss_z"},
        Curve{"Gradient norm: standard deviations from the steps before", "grad_norm_z"},
        Curve{"Seconds that rank 0 waited for the ring", "ring_wait_seconds"}}) {
    html += curve(one.title, metrics.points(one.field));
  }
  html += memory_table(metrics) + ring_table(metrics) + evaluation_table(metrics);
  return html + "</body></html>\n";
}

}  // namespace ringtrain
