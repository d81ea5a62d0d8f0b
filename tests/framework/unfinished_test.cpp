// Unfinished files of a process are removed when a signal ends the process.
#include "framework/process/unfinished.h"

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <functional>

#include "framework/output/output_file.h"
#include "framework/system/signals.h"
#include "tests/support/folder_test.h"

namespace ringtrain::testing {
namespace {

class UnfinishedOutput : public FolderTest {
 protected:
  /// Runs body in a separate process, which has begun a file and a folder. Returns its wait status.
  int status_of(const std::function<void()>& body) const {
    const pid_t child = ::fork();
    if (child == 0) {
      const rlimit none{};
      ::setrlimit(RLIMIT_CORE, &none);
      const OutputFile file(
          at("file"),
          OutputRules({"a test's file", "--output"}, OutputMark::none(), OutputInputs::none("a test reads none")),
          ExitCode::usage);
      const Unfinished unfinished(at("folder"));
      std::filesystem::create_directories(at("folder/content"));
      for (const char* name : {"folder/lock", "folder/content/a", "folder/content/b"}) std::ofstream(at(name)) << "x";
      std::filesystem::create_directory_symlink("../kept", at("folder/link"));
      body();
      std::_Exit(99);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    return status;
  }
  std::vector<std::string> left() const { return list_directory(folder, ExitCode::usage); }
};

TEST_F(UnfinishedOutput, GoesWithTheProcessThatASignalEnds) {
  std::filesystem::create_directory(at("kept"));
  std::ofstream(at("kept/mine")) << "x";
  const std::vector<std::string> kept{"kept"};
  for (const int signal : {SIGINT, SIGTERM, SIGQUIT, SIGALRM, SIGUSR2, SIGVTALRM, SIGIO, SIGRTMIN, SIGRTMAX}) {
    const int status = status_of([&] {
      set_program_signals();
      raise(signal);
    });
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal) << signal << " gave " << status;
    EXPECT_EQ(left(), kept) << signal;
  }
  const int status = status_of([] {
    set_program_signals();
    const SignalGuard guard;
    raise(SIGINT);
    raise(SIGTERM);
  });
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 8) << status;
  EXPECT_EQ(left(), kept);
  EXPECT_TRUE(std::filesystem::exists(at("kept/mine")));  // a link is not followed
}

TEST_F(UnfinishedOutput, GoesWithAProgramThatAWarningEnds) {
  // Warnings have no effect after a guard, and another test of this process may have had one; CTest runs each case in a
  // separate process.
  const pid_t child = ::fork();
  if (child == 0) {
    set_program_signals();
    raise(SIGUSR1);
    std::_Exit(99);
  }
  int probe = 0;
  ::waitpid(child, &probe, 0);
  if (WIFEXITED(probe) && WEXITSTATUS(probe) == 99) GTEST_SKIP() << "a test before this one had a SignalGuard";
  for (const int signal : {SIGHUP, SIGUSR1, SIGXCPU, SIGPWR}) {
    const int status = status_of([&] {
      std::signal(SIGHUP, SIG_DFL);
      set_program_signals();
      raise(signal);
    });
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 143) << signal << " gave " << status;
    EXPECT_TRUE(left().empty()) << signal;
  }
}

TEST_F(UnfinishedOutput, AnIgnoredSignalStaysIgnored) {
  const int status = status_of([] {
    std::signal(SIGQUIT, SIG_IGN);
    set_program_signals();
    raise(SIGQUIT);
    std::_Exit(0);
  });
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

}  // namespace
}  // namespace ringtrain::testing
