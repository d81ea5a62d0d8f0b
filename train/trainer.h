// The program `train` without its command line, and the entry point for programs that train: prepares a run, checks
// everything that can be checked before anything starts, and prints the plan (--dry-run) or runs it on all ranks.
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
  /// Opens the names in data.train and data.validation: token files, or the program's own tokens
  /// (data/tokens_in_memory.h). It must return the same in all processes of a run.
  TokenFileOpener open_tokens = TokenFile::open;
  RunCallbacks callbacks = {};
  /// What to train: the programs' transformer, or a program's own model.
  ModelDefinition model = transformer_definition();
  std::string build = {};  // which ringtrain this is
  bool dry_run = false;    // only plans: if the folder would refuse the run, that is logged, but is no failure
};

/// Returns the purpose of reading the config: a run that is only planned may be for another build.
inline ConfigUse use_of(const TrainOptions& options) {
  return options.dry_run ? ConfigUse::plan : ConfigUse::run;
}

/// Returns the files and folders that a run reads, some of them empty: no output of the run may overwrite one.
std::vector<std::string> inputs_of(const TrainOptions& options);

/// Checks the config by the same rules as a config file, whoever made it (checked_config). Opens and verifies data and
/// checkpoint, and chooses evaluation targets. Writes nothing. Throws whatever is wrong. If ranks are processes, each
/// prepares the run for itself; no communication.
Run prepare_run(const TrainOptions& given, const Log& log, const Launcher& launcher = {});

/// Returns the output of --dry-run: resolved config, parameters, data, mesh with every rank's positions, memory plan,
/// and the size of its checkpoints.
std::string dry_run_report(const Run& run, const Launcher& launcher = {});
/// Throws Error(usage), with the numbers and what to change, if this machine cannot hold the plan of its ranks.
void check_plan_memory(const Run& run, const Launcher& launcher = {});

/// Refuses a plan that cannot fit, a disk that cannot hold a checkpoint, and ranks that do not agree about the run;
/// then makes the folder and trains. Returns the program's exit code, the same in every process.
ExitCode train(const Run& run, const Log& log, Launcher& launcher);
/// The same, with ranks that are threads.
ExitCode train(const Run& run, const Log& log);

/// Instead of train(): runs the steps up to that of the dump request, refuses everything that train() refuses, and
/// writes only the dump. Returns the result of that step, the same in every process. look: rank 0 calls it with the
/// result once the dump is complete and no rank holds the run's memory anymore; the others wait for it, however long it
/// takes.
StepResult dumped_step(const Run& run, const Log& log, Launcher& launcher,
                       const std::function<void(const StepResult&)>& look = {});

}  // namespace ringtrain
