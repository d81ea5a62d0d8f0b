// Failing runs of processes, one per name: what each rank does. mpi_failure_test.cpp starts them and checks how they
// end.
#pragma once

#include "tests/parallel/mpi/process_program.h"

namespace ringtrain::testing {

const Scenarios& host_scenarios();

}  // namespace ringtrain::testing
