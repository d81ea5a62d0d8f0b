// Failing runs of processes connected by NCCL, one per name: what each rank does. nccl_processes_test.cpp starts them
// and checks how they end.
#pragma once

#include "tests/parallel/mpi/process_program.h"

namespace ringtrain::testing {

const Scenarios& nccl_scenarios();

}  // namespace ringtrain::testing
