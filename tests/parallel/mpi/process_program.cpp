#include "tests/parallel/mpi/process_program.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>

#include "tests/parallel/run_ranks.h"

namespace ringtrain::testing {

namespace {

class FailuresAlone : public ::testing::EmptyTestEventListener {
 public:
  explicit FailuresAlone(int rank) : rank_(rank) {}
  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "rank %d: %s:%d: %s\n", rank_, result.file_name() ? result.file_name() : "",
                 result.line_number(), result.message());
  }

 private:
  const int rank_;
};

int run_all(Communicator& world) {
  process_world() = &world;
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  if (world.rank() != 0) {
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailuresAlone(world.rank()));
  }
  const bool failed = RUN_ALL_TESTS() != 0 || ::testing::UnitTest::GetInstance()->test_to_run_count() == 0;
  std::array<std::int64_t, 1> any{failed ? 1 : 0};
  all_reduce_max(world, any, {"result of all tests"});
  process_world() = nullptr;
  return static_cast<int>(any[0]);
}

}  // namespace

int run_process_tests(Launcher& launcher) {
  int code = 1;
  try {
    launcher.launch({.ranks = launcher.processes(), .timeout_seconds = 60, .backend = Backend::mpi},
                    [&](Communicator& world) { code = run_all(world); });
    launcher.finish(code);
  } catch (const Error& error) {
    const ErrorReport words = launcher.fail(error);
    if (words.is_reporter) std::fprintf(stderr, "%s%s\n", words.calls.c_str(), words.sentence.c_str());
    return static_cast<int>(words.code);
  }
  return code;
}

int run_scenario(const Scenarios& scenarios, const std::string& name, double timeout_seconds, Launcher& launcher) {
  std::fprintf(stderr, "%s\n", scenario_begins);
  try {
    launcher.launch({.ranks = launcher.processes(), .timeout_seconds = timeout_seconds, .backend = Backend::mpi},
                    scenarios.at(name));
    launcher.finish(0);
    return 0;
  } catch (const Error& error) {
    const ErrorReport words = launcher.fail(error);
    if (words.is_reporter) std::fprintf(stderr, "scenario: %s\n%s", words.sentence.c_str(), words.calls.c_str());
    return static_cast<int>(words.code);
  }
}

}  // namespace ringtrain::testing
