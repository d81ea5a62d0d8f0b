// A chart as SVG within a page: curves over steps or context lengths, with ticks, smoothing, intervals, and marks for
// events. Its size is bounded for any number of points.
#pragma once

#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

namespace ringtrain {

struct ChartPoint {
  double x = 0, y = 0;                             // y finite
  double low = std::nan(""), high = std::nan("");  // of its interval, if any
};

struct ChartSeries {
  std::string name;                // "" if there is only one
  std::vector<ChartPoint> points;  // x ascending
};

/// An event at a step: its class in a page's style, its mark in a legend, and its words.
struct MarkKind {
  std::string_view name, mark, words;
};
inline constexpr std::array mark_kinds{MarkKind{"empty", "Tick at the bottom", "skipped, nothing to learn from"},
                                       MarkKind{"nonfinite", "\u2715", "skipped, loss or gradient norm is not finite"},
                                       MarkKind{"resume", "Dashed line", "resumed"},
                                       MarkKind{"spike", "\u25bc", "loss spike"}};

/// An event at x.
struct ChartMark {
  double x = 0;
  std::string_view kind;  // a name of mark_kinds
};

struct Chart {
  std::string title, unit;
  std::string x_name = "step";
  std::vector<ChartSeries> series = {};  // up to eight; empty ones are left out
  std::vector<ChartMark> marks = {};
  bool smooth = false;  // many points: the curve is their moving average, and they are behind it
  bool log_x = false;   // each x is a tick on a logarithmic axis; every point is a dot
  bool zero = false;    // the axis shows 0, with a line
};

/// Returns the values of a moving average: exponential, with a span of a fiftieth of the points; the weight of a value
/// is (1 - 2 / (span + 1)) times that of the next one, and there is no bias at the beginning.
std::vector<double> smoothed(const std::vector<ChartPoint>& points);

/// Returns round numbers from about low to high: at most `most` + 1.
std::vector<double> ticks(double low, double high, int most);

/// Returns a figure; "" if no series has a point.
std::string chart_figure(const Chart& chart);

}  // namespace ringtrain
