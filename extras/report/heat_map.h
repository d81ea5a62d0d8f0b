// A heat map as SVG within a page: a cell for each row and column, from nothing to the page's first colour, with its
// number on it.
#pragma once

#include <string>
#include <vector>

namespace ringtrain {

struct HeatMap {
  std::string title, unit;
  std::vector<std::string> columns = {}, rows = {};  // their names
  std::vector<std::vector<double>> values = {};      // [rows][columns]; NaN: the cell is empty
  double low = 0, high = 1;                          // values of no colour, and of all of it
};

/// Returns a figure; "" if no cell has a value.
std::string heat_map_figure(const HeatMap& map);

}  // namespace ringtrain
