// Saves checkpoints while training continues. A save has three parts. begin(): every rank copies its slices to its
// snapshot (on a GPU, concurrently with the next step, whose update waits for the copy). Then a separate thread, which
// never uses a communicator, writes each rank's file. When all are on disk, rank 0's thread writes config and manifest,
// syncs everything to disk, and renames the folder. Ranks learn that a part has ended at fixed points of the training
// loop: each adds unfinished() to a reduction, and all call advance() with the sum. At most one save is in flight.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>

namespace ringtrain {

class CopyStream;  // framework/copy_stream.h
class Error;
class Progress;             // framework/profile/progress.h
class RankState;            // train/engine/rank_state.h
struct CheckpointManifest;  // train/checkpoint/checkpoint_manifest.h
struct Run;                 // train/run/run.h

class CheckpointSaver {
 public:
  /// prepare is called only on rank 0, by the thread that calls the methods, before a save begins; if it throws an
  /// Error, the save fails. progress: rank 0's, which shows the outcome of saves. state, run, and progress must outlive
  /// this object.
  CheckpointSaver(RankState& state, const Run& run, std::function<void()> prepare, Progress* progress);
  /// Waits for this rank's thread. An unfinished save leaves a partial folder, which the next resume sweeps.
  ~CheckpointSaver();
  CheckpointSaver(const CheckpointSaver&) = delete;
  CheckpointSaver& operator=(const CheckpointSaver&) = delete;

  /// Collective. Starts the save of manifest.step; first waits for a pending one, and logs that. Without a snapshot, it
  /// returns when everything is done. It fills in manifest.ranks and files.
  void begin(const CheckpointManifest& manifest);
  /// Returns 1 on rank 0 if the last save, or the run, began checkpoint.every_minutes ago, otherwise 0. No
  /// communication.
  double due() const;
  /// Makes the stream's next work, an update, wait for the pending snapshot. No communication.
  void let_snapshot_end() const;
  /// Returns 1 while this rank has something to write, otherwise 0. No communication.
  double unfinished() const;
  /// Collective if a save is pending, otherwise does nothing. unfinished: the earlier sum over all ranks.
  void advance(double unfinished);
  /// Collective. Returns when no save is pending; ranks exchange signs of life, so that a long save causes no timeout.
  void finish();
  /// Collective. begin() and finish() for the last save of a run: a failure is an Error under either policy, because
  /// the run cannot continue.
  void save_last(const CheckpointManifest& manifest);
  /// Returns how many seconds the last announced save took, without its waits for the ends of steps; 0 before the
  /// first. Only rank 0 knows.
  double last_seconds() const { return last_seconds_; }
  /// Returns the part of a failure message that says which checkpoint this run has, or that it has none. Every rank
  /// knows.
  std::string what_is_saved() const;

  // A save that fails on any rank changes nothing that was there before; its partial folder is removed. Policy stop:
  // all ranks throw the same Error(checkpoint). Policy warn: rank 0 logs it, and training continues.
  // A state with a value that is not finite is never saved: Error(numeric) under both policies.

 private:
  struct Save;
  void start(std::function<void(Save&)> work);
  bool failed_anywhere(const std::optional<Error>& local_problem, const Save& save);
  void gather_files();
  void publish(Save& save);
  void announce(const Save& save);

  RankState& state_;
  const Run& run_;
  const std::function<void()> prepare_;
  Progress* const progress_;  // null except on rank 0
  const std::unique_ptr<CopyStream> snapshots_;
  bool last_ = false;
  std::int64_t saved_step_ = 0;                                                          // by this run; 0: none yet
  double last_seconds_ = 0;                                                              // for its save
  std::chrono::steady_clock::time_point last_begun_ = std::chrono::steady_clock::now();  // of the last save or the run
  std::set<std::string> reported_;  // what pruning has reported, to report it only once
  std::unique_ptr<Save> save_;      // pending; null: none. Constructed last, destroyed first: its thread uses the above
};

}  // namespace ringtrain
