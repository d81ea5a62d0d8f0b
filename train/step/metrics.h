// metrics.jsonl: one object per line, appended during a run (docs/metrics.md). Users' scripts rely on the field names.
// Only rank 0 writes it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "framework/allocator.h"
#include "framework/config/mesh_config.h"
#include "framework/storage/appended_file.h"
#include "train/evaluation/evaluation_report.h"
#include "train/step/step_result.h"
#include "train/step/step_trend.h"

namespace ringtrain {

using WallClock = std::chrono::system_clock;

/// The process that wrote a line.
struct ProcessStart {
  std::string build;         // "ringtrain 0.2.0 (commit 0123456789ab)"
  std::string host, device;  // of rank 0: "AMD EPYC 9B14"
  int cores = 0;             // that the process may use
  std::string ranks;         // "threads of one process"
  MeshConfig mesh;
};

/// The line of an optimizer step. Its loss, norm, and rate are null if they are not finite.
struct StepRecord : StepResult {
  WallClock::time_point time = {};  // its end
  int stage = 0;                    // from 1; 0: the run has only one, and its lines omit it
  std::int64_t seq_len = 0;         // of the stage
  std::int64_t skipped_steps = 0;   // so far: those without an update, for either reason
  double tokens_per_second = 0;
  double visible_pairs = 0;                  // of queries and keys, over the step's sequences
  std::optional<double> mfu = {};            // empty: the peak is unknown
  StepTrend::Verdict trend = {};             // compared with earlier steps
  std::vector<std::int64_t> samples = {};    // global indices of the step's sequences
  std::vector<MemoryUse> peak = {};          // by rank; empty: unchanged since the last line with it
  std::optional<ProcessStart> started = {};  // in the first line of a process
};

/// Returns the line of a step, without its end; loss, norm, and rate with all their digits.
std::string metrics_line(const StepRecord& record);
/// Returns the line of an evaluation during training, after `step` steps, which ended at `time`.
std::string metrics_line(std::int64_t step, WallClock::time_point time, const EvaluationSummary& summary);

class MetricsFile {
 public:
  /// Opens the file to append to it; creates it if missing. warn: called when the disk refuses lines, and when it has
  /// accepted them later. Throws Error(checkpoint), as do the other methods.
  MetricsFile(const std::string& path, OnFailure on_failure, Log warn);
  /// Appends a line. If the disk refuses it, no torn line is left. Policy stop: throws. Policy warn: the line waits in
  /// memory (at most 16 MiB, then it throws) and is tried again with the next line.
  void write(const std::string& line);
  /// Throws unless all lines are in the file, after trying once more.
  void flush() { lines_.append(); }

 private:
  /// The most bytes that may wait.
  static constexpr std::size_t max_waiting = std::size_t{16} << 20;
  AppendedFile lines_;
  OnFailure on_failure_;
  Log warn_;
  bool refused_ = false;  // and reported
};

}  // namespace ringtrain
