// metrics.jsonl as a page needs it: the numbers of every step, and of the few lines that are shown whole.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace ringtrain {

/// What the line of a step says; NaN where it has no number.
struct StepRow {
  std::int64_t step = 0;
  double tokens = 0, loss = 0, grad_norm = 0, lr = 0, seconds = 0, tokens_per_second = 0, mfu = 0, loss_z = 0,
         grad_norm_z = 0, ring_wait_seconds = 0;
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
