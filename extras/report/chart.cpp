#include "extras/report/chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "extras/report/page_parts.h"

namespace ringtrain {

namespace {

// In units of the view, which is as wide as a figure on a phone, so that letters are never too small.
constexpr double width = 420, height = 210, left = 56, right = 14, top = 12, bottom = 26;
constexpr std::size_t curve_stretches = 300;  // for a curve with more points than that
constexpr std::size_t hint_stretches = 30;    // that have points with tooltips
constexpr std::size_t least_to_smooth = 40;
constexpr std::string_view classes = "abcdefgh";

/// The position of numbers in the view.
struct Axes {
  double low_x = 0, high_x = 1, low_y = 0, high_y = 1;
  bool log_x = false;
  double x(double value) const {
    const double share =
        log_x ? std::log(value / low_x) / std::log(high_x / low_x) : (value - low_x) / (high_x - low_x);
    return left + std::clamp(std::isfinite(share) ? share : 0.5, 0.0, 1.0) * (width - left - right);
  }
  double y(double value) const {
    return height - bottom - (value - low_y) / (high_y - low_y) * (height - top - bottom);
  }
};

Axes axes_of(const Chart& chart) {
  Axes axes{.low_x = INFINITY, .high_x = -INFINITY, .low_y = INFINITY, .high_y = -INFINITY, .log_x = chart.log_x};
  const auto include = [&](double y) {
    if (!std::isfinite(y)) return;
    axes.low_y = std::min(axes.low_y, y);
    axes.high_y = std::max(axes.high_y, y);
  };
  for (const ChartSeries& series : chart.series) {
    for (const ChartPoint& point : series.points) {
      axes.low_x = std::min(axes.low_x, point.x);
      axes.high_x = std::max(axes.high_x, point.x);
      for (const double y : {point.y, point.low, point.high}) include(y);
    }
  }
  if (chart.zero) include(0);
  const double span = axes.high_y - axes.low_y;
  const double room = span > 0 ? span / 20 : std::max(std::abs(axes.low_y) / 20, 1e-12);
  axes.low_y -= room;
  axes.high_y += room;
  if (!chart.log_x && axes.high_x <= axes.low_x) {
    axes.low_x -= 1;
    axes.high_x += 1;
  }
  return axes;
}

std::string tick_text(double tick) {
  return std::abs(tick) < 1e4 ? fmt::format("{:.6g}", tick) : four_digits(tick);
}

/// Returns the usual name of a length in tokens: "4K" for 4096.
std::string length_text(double tokens) {
  double scaled = tokens;
  std::string_view units = " KM";
  for (; units.size() > 1 && scaled >= 1024 && std::fmod(scaled, 1024) == 0; units.remove_prefix(1)) scaled /= 1024;
  return units.front() == ' ' ? tick_text(tokens) : fmt::format("{:.0f}{}", scaled, units.front());
}

std::string text_at(double x, double y, const char* anchor, const std::string& words) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y, anchor, escaped(words));
}

std::string frame(const Chart& chart, const Axes& axes) {
  std::string svg;
  for (const double tick : ticks(axes.low_y, axes.high_y, 5)) {
    svg += fmt::format("<path class=\"{}\" d=\"M{} {:.1f}H{}\"/>\n", chart.zero && tick == 0 ? "zero" : "grid", left,
                       axes.y(tick), width - right);
    svg += text_at(left - 6, axes.y(tick) + 4, "end", tick_text(tick));
  }
  std::vector<double> below = ticks(axes.low_x, axes.high_x, 6);
  if (chart.log_x) {
    std::set<double> lengths;
    for (const ChartSeries& series : chart.series) {
      for (const ChartPoint& point : series.points) lengths.insert(point.x);
    }
    below.assign(lengths.begin(), lengths.end());
  }
  double free_from = 0;
  for (const double tick : below) {
    const double x = axes.x(tick);
    svg += fmt::format("<path class=\"grid\" d=\"M{:.1f} {}v4\"/>\n", x, height - bottom);
    constexpr double room = 34;  // for a label
    if (x < free_from) continue;
    free_from = x + room;
    const bool at_edge = x > width - right - 12;
    svg += text_at(at_edge ? width - 2 : x, height - 8, at_edge ? "end" : "middle",
                   chart.log_x ? length_text(tick) : tick_text(tick));
  }
  return svg;
}

std::string polyline(const std::vector<ChartPoint>& points, const Axes& axes, const std::string& names) {
  std::string list;
  for (const ChartPoint& point : points) list += fmt::format("{:.1f},{:.1f} ", axes.x(point.x), axes.y(point.y));
  return fmt::format("<polyline class=\"{}\" points=\"{}\"/>\n", names, list);
}

/// Returns fewer points that form a similar curve: the least and the largest of each of this many stretches, in order.
std::vector<ChartPoint> thinned(const std::vector<ChartPoint>& points, std::size_t stretches) {
  if (points.size() <= 2 * stretches) return points;
  std::vector<ChartPoint> few;
  for (std::size_t stretch = 0; stretch < stretches; ++stretch) {
    const auto at = [&](std::size_t i) {
      return points.begin() + static_cast<std::ptrdiff_t>(points.size() * i / stretches);
    };
    auto [low, high] = std::minmax_element(at(stretch), at(stretch + 1),
                                           [](const ChartPoint& a, const ChartPoint& b) { return a.y < b.y; });
    if (high < low) std::swap(low, high);
    few.push_back(*low);
    if (low != high) few.push_back(*high);
  }
  return few;
}

std::string hint(const Chart& chart, const ChartSeries& series, const ChartPoint& point) {
  std::string words = fmt::format("{} {:.0f}: {}", chart.x_name, point.x, four_digits(point.y));
  if (std::isfinite(point.low) && std::isfinite(point.high)) {
    words += fmt::format(", 95% {} to {}", four_digits(point.low), four_digits(point.high));
  }
  return escaped(series.name.empty() ? words : series.name + ", " + words);
}

std::string curve(const Chart& chart, const ChartSeries& series, const Axes& axes, char letter) {
  const std::string css_class = fmt::format("s{}", letter);
  std::string svg;
  std::vector<ChartPoint> line = series.points;
  if (chart.smooth && line.size() >= least_to_smooth) {
    svg += polyline(thinned(series.points, curve_stretches), axes, "raw " + css_class);
    const std::vector<double> average = smoothed(series.points);
    for (std::size_t i = 0; i < line.size(); ++i) line[i].y = average[i];
  }
  svg += polyline(thinned(line, curve_stretches), axes, css_class);
  for (const ChartPoint& point : thinned(series.points, hint_stretches)) {
    if (std::isfinite(point.low) && std::isfinite(point.high)) {
      svg += fmt::format("<path class=\"bar {0}\" d=\"M{1:.1f} {2:.1f}V{3:.1f}m-4 0h8M{4:.1f} {2:.1f}h8\"/>\n",
                         css_class, axes.x(point.x), axes.y(point.low), axes.y(point.high), axes.x(point.x) - 4);
    }
    svg += fmt::format("<circle class=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\"><title>{}</title></circle>\n",
                       chart.log_x ? "dot " + css_class : "hit", axes.x(point.x), axes.y(point.y),
                       chart.log_x ? 3.2 : 5.0, hint(chart, series, point));
  }
  return svg;
}

std::string drawn_mark(std::string_view kind, double x) {
  const double low = height - bottom;
  if (kind == "resume") return fmt::format("<path class=\"resume\" d=\"M{:.1f} {}V{}\">", x, top, low);
  if (kind == "spike") return fmt::format("<path class=\"spike\" d=\"M{:.1f} {}l4 -8h-8z\">", x, top + 2);
  if (kind == "empty") return fmt::format("<path class=\"empty\" d=\"M{:.1f} {}v-6\">", x, low);
  return fmt::format("<path class=\"nonfinite\" d=\"M{:.1f} {}l7 7m0 -7l-7 7\">", x - 3.5, low - 9);
}

/// Returns the marks; if several of one kind would overlap, only one of them.
std::string marks_of(const Chart& chart, const Axes& axes) {
  constexpr double apart = 4;
  std::string svg;
  for (const auto& [kind, mark, words] : mark_kinds) {
    std::set<int> taken;
    for (const ChartMark& chart_mark : chart.marks) {
      if (chart_mark.kind != kind || chart_mark.x < axes.low_x || chart_mark.x > axes.high_x) continue;
      if (!taken.insert(static_cast<int>(axes.x(chart_mark.x) / apart)).second) continue;
      svg += fmt::format("{}<title>{} {:.0f}: {}</title></path>\n", drawn_mark(kind, axes.x(chart_mark.x)),
                         chart.x_name, chart_mark.x, words);
    }
  }
  return svg;
}

}  // namespace

std::vector<double> smoothed(const std::vector<ChartPoint>& points) {
  const double span = std::max(1.0, static_cast<double>(points.size()) / 50), keep = 1 - 2 / (span + 1);
  std::vector<double> values;
  double sum = 0, weight = 0;
  for (const ChartPoint& point : points) {
    sum = keep * sum + (1 - keep) * point.y;
    weight = keep * weight + (1 - keep);
    values.push_back(sum / weight);
  }
  return values;
}

std::vector<double> ticks(double low, double high, int most) {
  const double rough = (high - low) / most;
  if (!(rough > 0) || !std::isfinite(rough)) return {};
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {5.0, 2.5, 2.0, 1.0}) {
    if (factor * power >= rough) step = factor * power;
  }
  std::vector<double> found;
  for (double i = std::ceil(low / step); i * step <= high && std::ssize(found) <= most; ++i)
    found.push_back(i * step + 0.0);  // -0 is 0
  return found;
}

std::string chart_figure(const Chart& chart) {
  const auto has_points = [](const ChartSeries& series) { return !series.points.empty(); };
  if (std::ranges::none_of(chart.series, has_points)) return "";
  const Axes axes = axes_of(chart);
  std::string caption = "<b>" + escaped(chart.title) + "</b> <span class=\"soft\">" + escaped(chart.unit) + "</span>";
  std::string curves;
  for (std::size_t i = 0; i < chart.series.size() && i < classes.size(); ++i) {
    const ChartSeries& series = chart.series[i];
    if (!has_points(series)) continue;
    curves += curve(chart, series, axes, classes[i]);
    caption += fmt::format(" <span class=\"number s{}\">{}{}</span>", classes[i],
                           series.name.empty() ? "" : "\u25a0 " + escaped(series.name) + " ",
                           four_digits(series.points.back().y));
  }
  return fmt::format("<figure><figcaption>{}</figcaption>\n<svg viewBox=\"0 0 {} {}\">\n{}{}{}</svg></figure>\n",
                     caption, width, height, frame(chart, axes), curves, marks_of(chart, axes));
}

}  // namespace ringtrain
