// Starts a scenario of processes (process_program.h) and checks how it ends.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "tests/parallel/mpi/process_program.h"

namespace ringtrain::testing {

struct Outcome {
  int code = -1;
  std::string text;    // without the lines of those that begin
  double seconds = 0;  // from the start of the first process: mpirun's own time to start them depends on the machine
};

/// Runs a command, which starts one, in a shell.
inline Outcome run_scenario_by(const std::string& launcher) {
  const std::string command =
      "export TMPDIR=$(mktemp -d); trap 'rm -rf $TMPDIR' EXIT; "  // mpiruns that share one may disturb each other
      "export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 ASAN_OPTIONS=detect_leaks=0; " +
      launcher + " 2>&1 </dev/null";
  Outcome outcome;
  auto start = std::chrono::steady_clock::now();
  bool begun = false;
  std::FILE* const pipe = ::popen(command.c_str(), "r");
  if (!pipe) return outcome;
  std::array<char, 4096> piece{};
  ssize_t n = 0;
  while ((n = ::read(::fileno(pipe), piece.data(), piece.size())) > 0) {  // at once, unlike fread
    outcome.text.append(piece.data(), static_cast<std::size_t>(n));
    if (!begun && outcome.text.find(scenario_begins) != std::string::npos) {
      begun = true;
      start = std::chrono::steady_clock::now();
    }
  }
  const int status = ::pclose(pipe);
  const std::string line = std::string(scenario_begins) + "\n";
  for (std::size_t at; (at = outcome.text.find(line)) != std::string::npos;) outcome.text.erase(at, line.size());
  outcome.code = WIFEXITED(status) ? WEXITSTATUS(status) : 256;
  outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return outcome;
}

inline constexpr int mpirun_decides = -1;  // mpirun chooses the code

inline void expect(const Outcome& outcome, int code, const std::vector<std::string>& words) {
  if (code != mpirun_decides) {
    EXPECT_EQ(outcome.code, code) << outcome.text;
  }
  EXPECT_LT(outcome.seconds, 60) << outcome.text;  // 1.5 s of timeout, 3 s of grace, mpirun's own end
  for (const std::string& word : words)
    EXPECT_NE(outcome.text.find(word), std::string::npos) << word << "\n" << outcome.text;
  const std::size_t said = outcome.text.find("scenario: ");
  EXPECT_NE(said, std::string::npos) << outcome.text;
  EXPECT_EQ(outcome.text.find("scenario: ", said + 1), std::string::npos) << "reported twice\n" << outcome.text;
}

}  // namespace ringtrain::testing
