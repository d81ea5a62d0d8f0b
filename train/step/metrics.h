// metrics.jsonl: one object a line, appended as a run goes (docs/metrics.md). Field names are what users' scripts rely
// on. Written by rank 0 alone.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
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

/// The process that a line comes from.
struct ProcessStart {
  std::string build;         // "ringtrain 0.2.0 (commit 0123456789ab)"
  std::string host, device;  // of rank 0: "AMD EPYC 9B14"
  int cores = 0;             // that the process may use
  std::string ranks;         // "threads of one process"
  MeshConfig mesh;
};

/// The line of an optimizer step. Loss, norm and rate are null in it where they are not finite.
struct StepRecord : StepResult {
  WallClock::time_point time = {};  // its end
  int stage = 0;                    // from 1; 0: the run has one alone, and its lines say nothing of it
  std::int64_t seq_len = 0;         // of the stage
  std::int64_t skipped_steps = 0;   // so far: without an update, for either reason
  double tokens_per_second = 0;
  double visible_pairs = 0;                  // of queries and keys, over the step's sequences
  std::optional<double> mfu = {};            // none: the peak is not known
  StepTrend::Verdict trend = {};             // compared with the steps before
  std::vector<std::int64_t> samples = {};    // global indices of the step's sequences
  std::vector<MemoryUse> peak = {};          // by rank; none: unchanged since the last line that has it
  std::optional<ProcessStart> started = {};  // in the first line of a process
};

/// Returns the line of a step, without its end; loss, norm and rate with all their digits.
std::string metrics_line(const StepRecord& record);
/// Returns the line of an evaluation during training, after `step` steps, which ended at `time`.
std::string metrics_line(std::int64_t step, WallClock::time_point time, const EvaluationSummary& summary);

class MetricsFile {
 public:
  /// Opens the file to append to it; made if missing. warn: gets a line when the disk refuses some, and
  /// when it has taken them later. Throws Error(checkpoint), as the others do.
  MetricsFile(const std::string& path, OnFailure on_failure, Log warn);
  /// Appends a line. What the disk refuses leaves no torn line; policy stop: throws. Policy warn: it waits in memory
  /// (16 MiB at most: then throws) and is tried again with the next line.
  void write(const std::string& line);
  /// Throws unless all lines are in the file, which is tried once more.
  void flush() { lines_.append(); }

 private:
  /// Most bytes that wait.
  static constexpr std::size_t max_waiting = std::size_t{16} << 20;
  AppendedFile lines_;
  OnFailure on_failure_;
  Log warn_;
  bool refused_ = false;  // and told
};

}  // namespace ringtrain
