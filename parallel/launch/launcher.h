// How a program's ranks are started: as threads of this process, or as the processes that an MPI launcher (mpirun)
// started. A program makes one Launcher and runs the body of a rank with it; the body is the same in both cases. The
// first error of any rank ends them all.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "parallel/call_history.h"
#include "parallel/launch/launch.h"

namespace ringtrain {

class MpiWorld;

class Launcher {
 public:
  /// Ranks are threads of this process.
  Launcher();
  /// Joins the processes that an MPI launcher started, if its environment is present; otherwise like the default
  /// constructor. Throws Error(usage) if there are several processes and this build has no MPI.
  static Launcher from_environment();
  /// Returns whether from_environment() would join processes that an MPI launcher started.
  static bool expects_processes();
  /// If ranks are processes and one has failed, a process that still runs 5 s later is ended with the error's code.
  ~Launcher();
  /// Takes over the processes; the other launcher may then only be destroyed.
  Launcher(Launcher&&) noexcept;
  Launcher& operator=(Launcher&&) = delete;

  /// Returns whether each rank is a separate process.
  bool ranks_are_processes() const { return world_ != nullptr; }
  /// Returns this process's index in the run: 0 of 1 if ranks are threads. It is the (first) rank of this process.
  int process() const;
  /// Returns the number of processes of the run: 1 if ranks are threads.
  int processes() const;
  /// Returns whether this is the process that prints, and writes files.
  bool is_rank_zero() const { return process() == 0; }
  /// Returns which of `ranks` ranks share this machine's memory and cores with this process.
  std::vector<int> ranks_here(int ranks) const;
  /// Returns which of `ranks` ranks run in this process.
  std::vector<int> ranks_of_process(int ranks) const;
  /// Returns "threads of one process" or "processes, 4 of them".
  std::string description() const;

  /// Throws Error(usage), with the numbers, if launch() could not run these options.
  void check(const LaunchOptions& options) const;
  /// Runs body(world) as every rank of this process, and returns when those have ended. Throws the first error of any
  /// rank, after every rank of this process has left its body. Ranks that are processes then have 3 s until ~Launcher.
  void launch(const LaunchOptions& options, const RankBody& body);

  /// Collective end of a program whose work is done. Throws Error(rank) if another process does not arrive. If ranks
  /// are processes, only returning from main may follow: a process that still runs 5 s later is ended with exit_code.
  void finish(int exit_code);
  /// Tells the other processes that this one ends with an error, and returns how it handles the error: with the ranks'
  /// last calls if it is an error of ranks. Does not throw.
  ErrorReport fail(const Error& error);

 private:
  std::unique_ptr<MpiWorld> world_;  // null: ranks are threads
  std::string calls_;                // of thread ranks, at the first error
};

}  // namespace ringtrain
