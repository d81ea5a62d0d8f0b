// The end of ranks that are processes: an MPI that hangs there (tests/support/hanging_mpi.c) stops none of them, and
// loses none of their work. And the messages of scripts/launch about its own processes and settings.
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "tests/support/wait_until.h"
#include "tests/train/faulty_disk.h"
#include "tests/train/launch_fixture.h"

namespace ringtrain::testing {
namespace {

class AtTheEnd : public LaunchTest {
 protected:
  /// Starts a run of two steps in a separate folder, with this command, and with an MPI that hangs at this point.
  Child hanging(const std::string& name, const std::string& place, const std::string& command,
                const std::vector<std::string>& arguments) const {
    std::filesystem::create_directory(at(name));
    const std::vector<std::string> program{binary_folder() + "/train", "--config", at("run.yaml"),     "--output",
                                           at(name) + "/run",          "--set",    "training.steps=2", "--set",
                                           "mesh.sequence=1"};
    const Variable wanted("RINGTRAIN_HANGING_MPI", place), temporary("TMPDIR", at(name)),
        preloaded("LD_PRELOAD", binary_folder() + "/hanging_mpi.so");
    return {command, joined(arguments, program), at(name)};
  }
  Child launched(const std::string& place) const {
    return hanging("launched-" + place, place, source_folder() + "/scripts/launch", {"-n", "2", "--"});
  }
  Child under_mpirun(const std::string& place) const {
    return hanging("plain-" + place, place, MPIEXEC, {"--oversubscribe", "--bind-to", "none", "-n", "2"});
  }
};

TEST_F(AtTheEnd, AnMpiThatHangsKeepsNoRank) {
  RINGTRAIN_NEEDS_FAULTY_DISK();
  const Variable root("OMPI_ALLOW_RUN_AS_ROOT", "1"), confirmed("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
  struct Case {
    Child child;
    std::string folder;
    int code;
  };
  std::vector<Case> cases;  // concurrently: they mostly wait
  cases.push_back({launched("finalize"), "launched-finalize", 0});
  cases.push_back({launched("exit"), "launched-exit", 0});
  cases.push_back({under_mpirun("finalize"), "plain-finalize", 1});  // mpirun's own: the rank left without permission
  cases.push_back({under_mpirun("exit"), "plain-exit", 0});
  for (Case& one : cases) {
    const ChildResult result = one.child.wait_at_most(240);
    EXPECT_EQ(result.code, one.code) << one.folder << "\n" << result.err;
    EXPECT_TRUE(holds(result.err, "of 2: all ranks are done (code 0), but MPI has not let this process end for 5 s"))
        << one.folder;
    EXPECT_EQ(saved_step(one.folder + "/run"), 2) << one.folder;
  }
  expect_nothing_left();
}

TEST_F(AtTheEnd, AnMpirunThatHangsWithoutARankEndsAsItWasAskedTo) {
  // Replaces mpirun by a program that has a child, which ends, and does not end itself. In one case it is asked to save
  // before.
  std::filesystem::create_directory(at("bin"));
  std::ofstream(at("bin/mpirun")) << "#!/bin/bash\ntrap '' USR1\n: >begun\nsleep 1\nexec sleep 36000\n";
  std::filesystem::permissions(at("bin/mpirun"), std::filesystem::perms::owner_all);
  const auto launched = [&](const char* name) {
    std::filesystem::create_directory(at(name));
    return Child(
        "/usr/bin/env",
        {"PATH=" + at("bin") + ":" + std::getenv("PATH"), "OMPI_ALLOW_RUN_AS_ROOT=1",
         "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1", source_folder() + "/scripts/launch", "-n", "2", "--", "/bin/true"},
        at(name));
  };
  Child asked = launched("asked"), unasked = launched("unasked");
  ASSERT_TRUE(wait_until([&] { return std::filesystem::exists(at("asked/begun")); }));
  ::kill(asked.id(), SIGTERM);
  ChildResult result = asked.wait_at_most(240);
  EXPECT_EQ(result.code, 143) << result.err;
  EXPECT_EQ(result.err,
            "launch: SIGTERM: every rank finishes its step and saves, then the run ends; press Ctrl-C or send "
            "SIGTERM again to end all ranks without saving\n");
  result = unasked.wait_at_most(240);
  EXPECT_EQ(result.code, 6) << result.err;
  EXPECT_EQ(result.err, "launch: mpirun has ended with exit code 137\n");
  expect_nothing_left();
}

TEST_F(AtTheEnd, AKilledKeeperIsOneSentence) {
  Child child = start({"--set", "training.steps=1000000", "--set", "mesh.timeout_seconds=60"});
  wait_for_steps(3);
  int keeper = 0;
  for (const std::string& process : left_behind()) {
    const std::string status = content_of("/proc/" + std::to_string(std::stoi(process)) + "/status");
    if (status.find(fmt::format("PPid:\t{}\n", child.id())) != std::string::npos) keeper = std::stoi(process);
  }
  ASSERT_GT(keeper, 0);
  ::kill(keeper, SIGKILL);
  const ChildResult result = child.wait_at_most(60);
  EXPECT_EQ(result.code, 6) << result.err;
  EXPECT_EQ(count_of(result.err, "launch: the process that watches mpirun has ended without a message"), 1u)
      << result.err;
  EXPECT_FALSE(holds(result.err, "scripts/launch: line")) << "bash's own words\n";
  expect_nothing_left();
}

TEST_F(AtTheEnd, RootsLeaveForMpirunIsReportedOnce) {
  if (::geteuid() != 0) GTEST_SKIP() << "mpirun wants a leave of root alone";
  ::unsetenv("OMPI_ALLOW_RUN_AS_ROOT");
  ::unsetenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM");
  ChildResult result = start({"--dry-run"}).wait();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_EQ(count_of(result.err, "launch: running mpirun as root: setting OMPI_ALLOW_RUN_AS_ROOT"), 1u) << result.err;
  const Variable root("OMPI_ALLOW_RUN_AS_ROOT", "1"), confirmed("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
  result = start({"--dry-run"}).wait();
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_FALSE(holds(result.err, "as root"));
}

}  // namespace
}  // namespace ringtrain::testing
