// Runs of processes joined by NCCL that fail, one a name: what each rank does. nccl_processes_test.cpp starts them and
// looks at how they end.
#pragma once

#include "tests/parallel/mpi/process_program.h"

namespace ringtrain::testing {

const Scenarios& nccl_scenarios();

}  // namespace ringtrain::testing
