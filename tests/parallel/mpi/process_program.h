// What programs of tests do that an MPI launcher starts: run all tests, each as all processes, or one scenario that
// fails.
#pragma once

#include <map>
#include <string>

#include "parallel/launch/launcher.h"

namespace ringtrain::testing {

/// Runs all tests with ranks that are these processes (run_ranks.h): every process runs every test; process 0 shows
/// them, the others show what fails. Returns the exit code.
int run_process_tests(Launcher& launcher);

/// What each rank does, by a name.
using Scenarios = std::map<std::string, RankBody>;
/// What each process says on stderr when its scenario begins.
inline constexpr const char* scenario_begins = "the scenario begins";
/// Runs the scenario of this name as this process's rank. Returns the exit code, having told the error as the programs
/// do: the lowest rank alone, with what each rank did last.
int run_scenario(const Scenarios& scenarios, const std::string& name, double timeout_seconds, Launcher& launcher);

}  // namespace ringtrain::testing
