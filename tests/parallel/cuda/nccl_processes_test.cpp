// How ranks fail that are processes connected by NCCL: each scenario is a separate run of 3 processes
// (mpi/scenarios.cpp), which must end soon, with the right code, and with one message that names the cause.
#if defined(RINGTRAIN_CUDA_EMULATED) && RINGTRAIN_MPI

#include "tests/parallel/mpi/scenario_run.h"
#include "tests/support/paths.h"

namespace ringtrain::testing {
namespace {

/// variables: NAME=VALUE for the processes.
Outcome run(const std::string& scenario, const std::string& variables = "") {
  return run_scenario_by("CUDA_EMULATOR_DEVICES=3 CUDA_EMULATOR_TELL=1 " + variables + " timeout 60 " +
                         source_folder() + "/scripts/launch -n 3 -- " + binary_folder() + "/gpu_mpi_tests --scenario " +
                         scenario);
}

/// Over a network, NCCL notices that another process has ended; within one machine it does not. The run ends in the
/// same way.
void expect_seen_or_not(const std::string& scenario, int code, const std::vector<std::string>& words) {
  for (const char* deaths : {"seen", "unseen"}) {
    SCOPED_TRACE(scenario + " " + deaths);
    expect(run(scenario, std::string("CUDA_EMULATOR_NCCL_DEATHS=") + deaths), code, words);
  }
}

TEST(NcclProcesses, LeaveInOrder) {
  const Outcome outcome = run("order");
  EXPECT_EQ(outcome.code, 0) << outcome.text;
  EXPECT_EQ(outcome.text, "");
}

TEST(NcclProcesses, AProcessThatIsKilledEndsTheOthers) {
  expect_seen_or_not("kill", 6, {"rank 1 of 3 (process", "has ended without a message"});
  expect(run("kill-joining"), 6, {"rank 1 of 3 (process", "has ended without a message"});
  expect_seen_or_not("kill-connecting", 6, {"rank 1 of 3 (process", "has ended without a message"});
}

TEST(NcclProcesses, TheFirstErrorIsReportedThoughNcclEndsBeforeItIsKnown) {
  // The throwing rank leaves NCCL while it unwinds, which the others may notice before they learn the reason.
  expect_seen_or_not("throw", 5, {": a bad number"});
  expect(run("throw-joining"), 3, {": bad data"});
}

TEST(NcclProcesses, WhatNeverEndsTimesOut) {
  expect(run("hang"), 6, {"of 3 waited 1.25 s (mesh.timeout_seconds) in test message, layer 3, hop 2 on its GPU"});
  expect(run("stay-away"), 6, {"of 3 waited 1.25 s (mesh.timeout_seconds) for the other ranks to reach joining"});
}

TEST(NcclProcesses, ErrorsOfNcclAndOfTheGpuHaveTheirCode) {
  expect(run("nccl-error"), 7, {"rank 1 of 3", "unhandled cuda error"});
  expect(run("gpu-error"), 7, {"GPU 1 of host", "cudaErrorECCUncorrectable"});
  expect(run("sizes"), 7, {"of 3: ", "internal error"});  // NCCL's last message may be about another communicator
}

TEST(NcclProcesses, WhatCannotBeginIsReportedByOne) {
  expect(run("share"), 2, {"ranks 0 and 1 of 3 share one"});
}

}  // namespace
}  // namespace ringtrain::testing

#endif
