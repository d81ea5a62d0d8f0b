// The program `train` without its command line: prepares a run, checks everything that can be checked before anything
// starts, tells the plan (--dry-run) or runs it on all ranks.
#pragma once

#include <cstdint>
#include <string>

#include "framework/config.h"
#include "train/run.h"

namespace ringtrain {

struct TrainOptions {
  Config config;
  std::string output;  // the run's folder
  StartRequest start;
  std::int64_t stop_after = 0;  // 0: after training.steps
  TraceRequest trace = {};
};

/// Opens and verifies data and checkpoint, chooses evaluation targets. Writes nothing. Throws what is wrong.
Run prepare_run(const TrainOptions& options, const Note& note);

/// Return what --dry-run prints: resolved config, parameters, data, mesh with everybody's positions, memory plan.
std::string dry_run_report(const Run& run);
/// Throws Error(usage), with the numbers and what to change, if the run's plan does not fit the machine.
void require_fitting_plan(const Run& run);

/// Refuses a plan that cannot fit, makes the folder, trains. Return the program's exit code.
ExitCode train(const Run& run, const Note& note);

}  // namespace ringtrain
