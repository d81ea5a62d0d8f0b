// Runs of processes that fail, one a name: what each rank does. mpi_failure_test.cpp starts them and looks at how they
// end.
#pragma once

#include "tests/parallel/mpi/process_program.h"

namespace ringtrain::testing {

const Scenarios& host_scenarios();

}  // namespace ringtrain::testing
