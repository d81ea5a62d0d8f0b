#include "extras/report/heat_map.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "extras/report/page_parts.h"

namespace ringtrain {

namespace {

// In units of the view, as in a chart.
constexpr double width = 420, left = 56, top = 8, bottom = 24, cell_height = 26;

}  // namespace

std::string heat_map_figure(const HeatMap& map) {
  std::string cells;
  bool any = false;
  const double cell_width = (width - left) / static_cast<double>(std::max<std::size_t>(1, map.columns.size()));
  for (std::size_t row = 0; row < map.rows.size(); ++row) {
    const double y = top + static_cast<double>(row) * cell_height;
    cells += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", left - 6,
                         y + cell_height / 2 + 4, escaped(map.rows[row]));
    for (std::size_t column = 0; column < map.columns.size(); ++column) {
      const double value = map.values[row][column], x = left + static_cast<double>(column) * cell_width;
      if (!std::isfinite(value)) continue;
      any = true;
      const double share = std::clamp((value - map.low) / (map.high - map.low), 0.0, 1.0);
      cells += fmt::format(
          "<rect class=\"cell\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill-opacity=\"{:.2f}\">"
          "<title>{}, {}: {}</title></rect>\n<text class=\"in\" x=\"{:.1f}\" y=\"{:.1f}\" "
          "text-anchor=\"middle\">{}</text>\n",
          x, y, cell_width - 2, cell_height - 2, 0.55 * share, escaped(map.rows[row]), escaped(map.columns[column]),
          four_digits(value), x + cell_width / 2 - 1, y + cell_height / 2 + 3, round_digits(value));
    }
  }
  if (!any) return "";
  const double height = top + static_cast<double>(map.rows.size()) * cell_height + bottom;
  for (std::size_t column = 0; column < map.columns.size(); ++column) {
    cells += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\">{}</text>\n",
                         left + (static_cast<double>(column) + 0.5) * cell_width - 1, height - 8,
                         escaped(map.columns[column]));
  }
  return fmt::format(
      "<figure><figcaption><b>{}</b> <span class=\"soft\">{}</span></figcaption>\n<svg viewBox=\"0 0 {} {:.0f}\">\n"
      "{}</svg></figure>\n",
      escaped(map.title), escaped(map.unit), width, height, cells);
}

}  // namespace ringtrain
