// The timeline of a training run (train --trace): its request as the command line gives it, and its file, which is
// written when the run ends, well or not.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "framework/output/output_file.h"
#include "framework/profile/trace.h"
#include "parallel/launch/launcher.h"
#include "train/run/run.h"

namespace ringtrain {

/// Sets the steps of a request from "A:B", 1 <= A <= B. Throws Error(usage); also if the request has no path.
void read_trace_steps(const std::string& text, TraceRequest& request);

/// Returns the file of this process: trace.rank0.json, ... where ranks are processes and the run asks for trace.json.
std::string trace_path(const TraceRequest& request, const Launcher& launcher);
/// Returns what a run's timeline may replace.
OutputRules trace_rules(const TraceRequest& request);

/// The timeline of all ranks of this process, if the run asks for one. Of ranks that are processes each writes a file
/// of its own.
class TraceFile {
 public:
  /// Claims the file, in a folder that is made. Throws Error(usage) as OutputFile does.
  TraceFile(const Run& run, const Launcher& launcher, Log log);
  /// Writes the file. What the disk refuses is told, not thrown: the run's own result stands.
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  /// Returns where a rank records; null: nowhere.
  RankTrace* rank(int rank) { return trace_ ? &trace_->rank(rank) : nullptr; }

 private:
  const Log log_;
  std::optional<OutputFile> file_;
  std::unique_ptr<Trace> trace_;
};

}  // namespace ringtrain
