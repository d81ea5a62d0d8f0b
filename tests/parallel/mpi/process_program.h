// The work of test programs that an MPI launcher starts: run all tests, each in all processes, or one failing scenario.
#pragma once

#include <map>
#include <string>

#include "parallel/launch/launcher.h"

namespace ringtrain::testing {

/// Runs all tests with ranks that are these processes (run_ranks.h): every process runs every test; process 0 prints
/// them, the others print failures. Returns the exit code.
int run_process_tests(Launcher& launcher);

/// What each rank does, by scenario name.
using Scenarios = std::map<std::string, RankBody>;
/// Printed by each process on stderr when its scenario begins.
inline constexpr const char* scenario_begins = "the scenario begins";
/// Runs the scenario of this name as this process's rank. Returns the exit code, after printing the error as the
/// programs do: only by the lowest rank, with each rank's last operation.
int run_scenario(const Scenarios& scenarios, const std::string& name, double timeout_seconds, Launcher& launcher);

}  // namespace ringtrain::testing
