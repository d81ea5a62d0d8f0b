// The program `train` without its command line, and the door for programs that train: prepares a run, checks everything
// that can be checked before anything starts, tells the plan (--dry-run) or runs it on all ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "framework/config/config.h"
#include "framework/config/config_check.h"
#include "parallel/launch/launcher.h"
#include "train/run/run.h"
#include "train/step/step_result.h"

namespace ringtrain {

struct TrainOptions {
  Config config;
  std::string output = {};  // the run's folder
  StartRequest start = {};
  std::int64_t stop_after = 0;  // 0: after training.steps
  TraceRequest trace = {};
  DumpRequest dump = {};
  /// What the names of data.train and data.validation stand for: token files, or tokens of the program's own
  /// (data/tokens_in_memory.h). All processes of a run must answer alike.
  TokenFileOpener open_tokens = TokenFile::open;
  RunCallbacks callbacks = {};
  /// What is trained: the programs' transformer, or a model of the program's own.
  ModelDefinition model = transformer_definition();
  std::string build = {};  // which ringtrain this is
  bool dry_run = false;    // it is only planned: a folder that would refuse it is told, and no reason to end
};

/// Returns what the config is read for: a run that is only planned may be one of another build.
inline ConfigUse use_of(const TrainOptions& options) {
  return options.dry_run ? ConfigUse::plan : ConfigUse::run;
}

/// Returns the files and folders that a run reads, some of them empty: no output of the run replaces one.
std::vector<std::string> inputs_of(const TrainOptions& options);

/// Checks the config by the rules of one that is read, whoever made it (checked_config). Opens and verifies data and
/// checkpoint, chooses evaluation targets. Writes nothing. Throws what is wrong. Of ranks
/// that are processes each prepares the run for itself; no communication.
Run prepare_run(const TrainOptions& given, const Log& log, const Launcher& launcher = {});

/// Returns what --dry-run prints: resolved config, parameters, data, mesh with everybody's positions, memory plan,
/// and what its checkpoints take.
std::string dry_run_report(const Run& run, const Launcher& launcher = {});
/// Throws Error(usage), with the numbers and what to change, if the plan of the ranks on this machine does not fit it.
void check_plan_memory(const Run& run, const Launcher& launcher = {});

/// Refuses a plan that cannot fit, a disk that cannot hold a checkpoint and ranks that do not agree about the run,
/// makes the folder, trains. Returns the program's exit code, the same in every process.
ExitCode train(const Run& run, const Log& log, Launcher& launcher);
/// The same, of ranks that are threads.
ExitCode train(const Run& run, const Log& log);

/// Instead of train(): does the run's steps up to the one of its dump request, with all that train() refuses, and
/// writes nothing but the dump. Returns what that step gave, the same in every process. look: called by rank 0 with
/// that, once the dump is whole and no rank has the run's memory any more; the others wait for it, however long it
/// takes.
StepResult dumped_step(const Run& run, const Log& log, Launcher& launcher,
                       const std::function<void(const StepResult&)>& look = {});

}  // namespace ringtrain
