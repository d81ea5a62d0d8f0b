// The timeline of a training run (train --trace): its request as the command line gives it, and its file, which is
// written when the run ends, well or not.
#pragma once

#include <memory>
#include <string>

#include "framework/profile/trace.h"
#include "parallel/launch/launch.h"
#include "train/run.h"

namespace ringtrain {

/// Sets the steps of a request from "A:B", 1 <= A <= B. Throws Error(usage); also if the request has no path.
void read_trace_steps(const std::string& text, TraceRequest& request);

/// The timeline of all ranks of this process, if the run asks for one. Of ranks that are processes each writes a file
/// of its own: trace.rank0.json, ... where the run asks for trace.json.
class TraceFile {
 public:
  TraceFile(const Run& run, const Launcher& launcher, Note note);
  /// Writes the file. What the disk refuses is told, not thrown: the run's own result stands.
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  /// Return where a rank records; null: nowhere.
  RankTrace* rank(int rank) { return trace_ ? &trace_->rank(rank) : nullptr; }

 private:
  const std::string path_;
  const Note note_;
  std::unique_ptr<Trace> trace_;
};

}  // namespace ringtrain
