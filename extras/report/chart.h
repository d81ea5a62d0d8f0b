// A chart as SVG within a page: curves over steps or context lengths, with ticks, smoothing, intervals, and marks for
// what happened. Its size is bounded, however many points there are.
#pragma once

#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

namespace ringtrain {

struct ChartPoint {
  double x = 0, y = 0;                             // y finite
  double low = std::nan(""), high = std::nan("");  // of its interval, if it has one
};

struct ChartSeries {
  std::string name;                // "" if there is one alone
  std::vector<ChartPoint> points;  // x ascending
};

/// What can happen at a step: its class in a page's style, its mark in a legend, and its words.
struct MarkKind {
  std::string_view name, mark, words;
};
inline constexpr std::array mark_kinds{MarkKind{"empty", "Tick at the bottom", "skipped, nothing to learn from"},
                                       MarkKind{"nonfinite", "\u2715", "skipped, loss or gradient norm is not finite"},
                                       MarkKind{"resume", "Dashed line", "resumed"},
                                       MarkKind{"spike", "\u25bc", "loss spike"}};

/// Something that happened at x.
struct ChartMark {
  double x = 0;
  std::string_view kind;  // a name of mark_kinds
};

struct Chart {
  std::string title, unit;
  std::string x_name = "step";
  std::vector<ChartSeries> series = {};  // up to eight; those without a point are left out
  std::vector<ChartMark> marks = {};
  bool smooth = false;  // many points: the curve is their moving average, and they stand behind it
  bool log_x = false;   // each x is a tick, and lies by its logarithm; every point is a dot
  bool zero = false;    // the axis shows 0, with a line
};

/// Returns the values of a moving average: exponential, with a span of a fiftieth of the points, each value weighted by
/// (1 - 2 / (span + 1)) more than the one before, from the first one on without a bias.
std::vector<double> smoothed(const std::vector<ChartPoint>& points);

/// Returns round numbers from low to high or a bit less: at most `most` + 1.
std::vector<double> ticks(double low, double high, int most);

/// Returns a figure; "" if no series has a point.
std::string chart_figure(const Chart& chart);

}  // namespace ringtrain
