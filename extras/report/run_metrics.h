// metrics.jsonl in the form that a page needs: the numbers of every step, and the few lines that are shown whole.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace ringtrain {

/// The content of a step's line.
struct StepRow {
  std::int64_t step = 0;
  std::map<std::string_view, double> numbers = {};  // by the names that a page shows; NaN for a missing one
  bool empty = false, spike = false;
  bool started = false;  // whether it is the first of a process
};

struct RunMetrics {
  std::vector<StepRow> steps;                   // ascending; if a step has several lines, the last one
  std::vector<nlohmann::json> evaluations;      // in the order of the file
  std::vector<nlohmann::json> starts;           // "started" of each process, with the "step" of its line
  nlohmann::json peaks;                         // "peak_bytes" of the last line that has them; null: none
  nlohmann::json ring;                          // "ring" likewise, with its "step"
  std::int64_t skipped = 0, first_skipped = 0;  // lines that were not understood, and the number of the first
};

/// Reads the file line by line. Throws Error(usage) if it has no training step, or is not a regular file.
RunMetrics read_run_metrics(const std::string& path);

}  // namespace ringtrain
