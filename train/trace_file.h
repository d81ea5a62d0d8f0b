// The timeline of a training run (train --trace): its request on the command line, and its file, which is written when
// the run ends, whether it succeeds or not.
//
// Ranks that are processes have separate clocks. Each compares its clock with rank 0's when it starts and when it ends,
// so one file can hold all ranks in rank 0's time. A failed run can no longer send anything: each process then writes a
// separate file, in the same time as far as the start measured it.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "framework/error.h"
#include "framework/output/output_file.h"
#include "framework/profile/clock_mapping.h"
#include "framework/profile/trace.h"
#include "parallel/communicator.h"
#include "parallel/launch/launcher.h"
#include "train/run/run.h"

namespace ringtrain {

/// Sets the steps of a request from "A:B", 1 <= A <= B. Throws Error(usage).
void read_trace_steps(const std::string& text, TraceRequest& request);

/// Throws Error(usage) if the rules do not let the run write a file that this process may write: the timeline, and,
/// with several processes, its own one, trace.rank0.json next to trace.json. Does nothing without a request.
void check_trace(const TraceRequest& request, const Launcher& launcher);

/// The timeline of all ranks of this process, if the run requests one.
class TraceFile {
 public:
  /// Rank 0's process claims the file, and creates its folder. Throws Error(usage) as OutputFile does.
  TraceFile(const Run& run, const Launcher& launcher, Log log);
  /// Logs that a timeline was lost, unless finish() threw that: the run's own outcome comes first.
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  /// Returns where a rank records; null: nowhere.
  RankTrace* rank(int rank) { return trace_ ? &trace_->rank(rank) : nullptr; }
  /// Collective if ranks are processes, before anything is recorded: reads their clocks. Otherwise it does nothing, and
  /// neither does gather().
  void begin(Communicator& world);
  /// Collective if ranks are processes, after they stop recording: rank 0 writes one file for all.
  void gather(Communicator& world);
  /// Writes what was not gathered. Throws Error(usage) in the process whose file could not be written, in gather() or
  /// here. Call it when everything else of the run is done.
  void finish();

 private:
  bool of_processes() const { return processes_ > 1; }
  std::int64_t now() const { return trace_->rank(process_).work.now(); }
  void write_rest();
  void write_own() const;
  void tell_written(const std::string& path, std::size_t dropped) const;

  const TraceRequest request_;
  const int process_, processes_, sequence_;
  const Log log_;
  std::optional<OutputFile> file_;  // in rank 0's process
  std::unique_ptr<Trace> trace_;    // null: not requested, or already written
  std::optional<Error> problem_;    // why the timeline could not be written
  ClockPair start_;
};

}  // namespace ringtrain
