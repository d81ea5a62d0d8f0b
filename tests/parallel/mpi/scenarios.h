// Runs of processes that fail, one a name: what each rank does. mpi_failure_test.cpp starts them and looks at how they
// end.
#pragma once

#include <string>

#include "parallel/launch.h"

namespace ringtrain::testing {

/// Runs the scenario of this name as this process's rank. Return the exit code, having told the error as the programs
/// do: the lowest rank alone, with what each rank did last.
int run_scenario(const std::string& name, Launcher& launcher);

}  // namespace ringtrain::testing
