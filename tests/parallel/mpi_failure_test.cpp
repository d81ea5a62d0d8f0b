// How ranks that are processes fail: each scenario is a separate run of 4 processes (mpi/scenarios.cpp), which must end
// soon, with the right code, and with one message that names the cause.
#include "tests/parallel/mpi/scenario_run.h"
#include "tests/support/paths.h"

namespace ringtrain::testing {
namespace {

Outcome run(const std::string& scenario, const std::string& options = "") {
  return run_scenario_by("timeout 60 " MPIEXEC " --quiet --oversubscribe --bind-to none " + options + " -n 4 " +
                         binary_folder() + "/parallel_mpi_tests --scenario " + scenario);
}

/// Output that mpirun has not passed on when it kills is lost; on a busy machine, this may be a whole report.
constexpr const char* kill_no_process = "--mca orte_abort_on_non_zero_status 0";

TEST(MpiFailure, TimeoutNamesWhoWaitsForWhom) {
  expect(run("receive"), 6,
         {"rank 2 of 4 waited 1.5 s (mesh.timeout_seconds)",
          "in test message, layer 3, hop 2: rank 1 has not sent the 40 expected bytes"});
  expect(run("send"), 6, {"rank 3 of 4 waited 1.5 s", "in odd: rank 1 has not received the 8388608 bytes"});
  expect(run("barrier"), 6, {"test message, layer 3, hop 2: waiting for rank 1, 3"});
}

TEST(MpiFailure, ReportHasEveryRanksLastCalls) {
  const Outcome outcome = run("receive");
  for (int rank = 0; rank < 4; ++rank) {
    EXPECT_NE(outcome.text.find("  rank " + std::to_string(rank) + " of 4 (process "), std::string::npos)
        << outcome.text;
  }
  for (const char* words : {"the others", "test message, layer 3, hop 2; 40 bytes from rank 1 (in progress)"}) {
    EXPECT_NE(outcome.text.find(words), std::string::npos) << outcome.text;
  }
}

TEST(MpiFailure, BothSidesMustAgree) {
  expect(run("sizes"), 6, {"rank 0 sends 24 bytes (values, hop 1) to rank 1, which expects 32 bytes (values, hop 1)"});
  expect(run("larger"), 6,
         {"rank 0 sends 8388608 bytes (test message, layer 3, hop 2) to rank 1, which expects 32 bytes"});
  const Outcome outcome = run("operations");
  expect(outcome, 6, {"sends 24 bytes", "expects 24 bytes", "(forward, layer 0)", "(backward, layer 1)"});
}

TEST(MpiFailure, TheFirstErrorEndsEveryCallEverywhere) {
  const Outcome outcome = run("abort");
  expect(outcome, 5, {"scenario: rank 3 of 4 (process ", ": the first error"});
  EXPECT_EQ(outcome.text.find("second"), std::string::npos) << outcome.text;
}

TEST(MpiFailure, UnwindingMayFreeBuffersOfMessagesUnderWay) {
  for (int trial = 0; trial < 3; ++trial) expect(run("unwinding"), 3, {"rank 0 has bad data"});
}

TEST(MpiFailure, AProcessThatEndsIsNoticedAtOnce) {
  expect(run("leaves"), mpirun_decides, {"rank 1 of 4 (process", "has ended without a message"});
}

TEST(MpiFailure, ARankThatComputesOnIsEnded) {
  Outcome outcome;
  for (int i = 0; i < 4 && outcome.seconds < 2; ++i)
    outcome = run("computes", kill_no_process);  // it kills occasionally
  expect(outcome, mpirun_decides, {"rank 0 sees NaN", "of 4 ended before its work was done"});
}

TEST(MpiFailure, AllRanksEndTogether) {
  EXPECT_EQ(run("end").code, 6);
  expect(run("end", kill_no_process), mpirun_decides, {"for rank 0"});
}

}  // namespace
}  // namespace ringtrain::testing
