// metrics.jsonl as a page needs it: the numbers of every step, and of the few lines that are shown whole.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>

#include <string>
#include <string_view>
#include <vector>

namespace ringtrain {

/// What the line of a step says.
struct StepRow {
  std::int64_t step = 0;
  std::map<std::string_view, double> numbers = {};  // by the names of the line that a page shows; NaN where it has none
  bool empty = false, spike = false;
  bool started = false;  // it is the first of a process
};

struct RunMetrics {
  std::vector<StepRow> steps;                   // ascending; of a step the last line counts
  std::vector<nlohmann::json> evaluations;      // in the order of the file
  std::vector<nlohmann::json> starts;           // "started" of each process, with the "step" of its line
  nlohmann::json peaks;                         // "peak_bytes" of the last line that has them; null: none has
  nlohmann::json ring;                          // "ring" likewise, with its "step"
  std::int64_t skipped = 0, first_skipped = 0;  // lines that are not understood, and the number of the first
};

/// Reads the file line by line. Throws Error(usage) if it holds no training step, or is no regular file.
RunMetrics read_run_metrics(const std::string& path);

}  // namespace ringtrain
