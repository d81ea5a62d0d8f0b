// The main of parallel_mpi_tests: repeats the tests of communicators, collectives, ring, and gradient reduction, with
// ranks that are processes. With --scenario NAME: runs one failing scenario instead; with --overlap BYTES_PER_SECOND
// DELAY or --transfers BYTES_PER_SECOND: the measurements of tests/hosts.
#include <gtest/gtest.h>

#include <string>

#include "tests/parallel/mpi/overlap.h"
#include "tests/parallel/mpi/process_program.h"
#include "tests/parallel/mpi/scenarios.h"

using namespace ringtrain::testing;

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  ringtrain::Launcher launcher = ringtrain::Launcher::from_environment();
  if (argc == 3 && std::string(argv[1]) == "--scenario") return run_scenario(host_scenarios(), argv[2], 1.5, launcher);
  if (argc == 4 && std::string(argv[1]) == "--overlap") {
    return measure_overlap(launcher, {std::stod(argv[2]), std::stod(argv[3])});
  }
  if (argc == 3 && std::string(argv[1]) == "--transfers") {
    return measure_transfers(launcher, {.bytes_per_second = std::stod(argv[2])});
  }
  return run_process_tests(launcher);
}
