// The timeline of a training run (train --trace): its request as the command line gives it, and its file, which is
// written when the run ends, well or not.
//
// Ranks that are processes have clocks of their own. Each reads its clock beside that of rank 0 when it starts and when
// it ends, so one file holds all ranks by the clock of rank 0. A run that fails can no longer send anything: then each
// process writes a file of its own, by the same clock as far as the start knew it.
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

/// Throws Error(usage) if the rules keep the run from a file that this process may write: the timeline, and of several
/// processes its own one, trace.rank0.json beside trace.json. Does nothing without a request.
void check_trace(const TraceRequest& request, const Launcher& launcher);

/// The timeline of all ranks of this process, if the run asks for one.
class TraceFile {
 public:
  /// Rank 0's process claims the file, in a folder that is made. Throws Error(usage) as OutputFile does.
  TraceFile(const Run& run, const Launcher& launcher, Log log);
  /// Logs a timeline that was lost, unless finish() threw it: the end of the run comes first.
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  /// Returns where a rank records; null: nowhere.
  RankTrace* rank(int rank) { return trace_ ? &trace_->rank(rank) : nullptr; }
  /// Collective where ranks are processes, before anything is recorded: reads their clocks. Else it does nothing, and
  /// so does gather().
  void begin(Communicator& world);
  /// Collective where ranks are processes, when they record no more: rank 0 writes the file of all.
  void gather(Communicator& world);
  /// Writes what was not gathered. Throws Error(usage) in the process whose file could not be written, in gather() or
  /// here. Called when all else of the run is done.
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
  std::optional<OutputFile> file_;  // of rank 0's process
  std::unique_ptr<Trace> trace_;    // null: none is wanted, or it is written
  std::optional<Error> problem_;    // what kept the timeline from its file
  ClockPair start_;
};

}  // namespace ringtrain
