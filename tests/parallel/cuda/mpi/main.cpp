// The main of gpu_mpi_tests: repeats the tests of exchanges between ranks with a GPU each, with ranks that are
// processes connected by NCCL. With --scenario NAME: runs one failing scenario instead (only on the emulator).
#include <gtest/gtest.h>

#include <string>

#include "tests/parallel/cuda/mpi/scenarios.h"

using namespace ringtrain::testing;

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  ringtrain::Launcher launcher = ringtrain::Launcher::from_environment();
#if defined(RINGTRAIN_CUDA_EMULATED)
  if (argc == 3 && std::string(argv[1]) == "--scenario") return run_scenario(nccl_scenarios(), argv[2], 20, launcher);
#endif
  return run_process_tests(launcher);
}
