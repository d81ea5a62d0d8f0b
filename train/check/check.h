// The program `check` without its command line: compares one step of a run, exactly as its config says it, with the
// reference.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "parallel/launch/launcher.h"
#include "train/check/step_check.h"
#include "train/trainer.h"

namespace ringtrain {

struct CheckOptions {
  TrainOptions train;       // config, where the run begins, and the dump's folder; the run's folder is never made
  std::int64_t tokens = 0;  // of a sequence; 0: the config's
  std::int64_t layers = 0;  // 0: the config's
  bool keep = false;        // keeps the dump
  /// Called with the number of sequences that the reference has done.
  std::function<void(std::int64_t done, std::int64_t total)> progress = {};
};

struct CheckReport {
  std::string run;                // the step, the mesh, the data
  std::vector<std::string> cuts;  // what --seq-len and --layers left out, one clause each
  std::string bounds;             // how they are derived
  std::vector<CheckedTensor> tensors;
  std::string dump;  // the folder that was kept; "": it was removed
  double run_seconds = 0, reference_seconds = 0;

  /// Returns the first tensor that differs, null if none does.
  const CheckedTensor* first() const;
  /// Returns the names of the gradients that test nothing.
  std::vector<std::string> untested() const;
  /// Returns whether nothing differs and nothing is untested.
  bool right() const { return first() == nullptr && untested().empty(); }
};

/// Returns the options of the run to check, and adds what they cut. Throws Error(usage) for a cut that would add
/// something.
TrainOptions checked_run(const CheckOptions& options, std::vector<std::string>& cuts);

/// Runs the steps up to the dumped one, and compares that one with the reference. Collective over the launcher's
/// processes; process 0 returns the report, the others an empty one. Throws Error(usage) if the reference does not fit
/// in memory, and whatever train() throws.
CheckReport check_run(const CheckOptions& options, const Log& log, Launcher& launcher);
CheckReport check_run(const CheckOptions& options, const Log& log);  // ranks are threads

}  // namespace ringtrain
