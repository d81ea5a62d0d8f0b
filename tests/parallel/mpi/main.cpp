// The main of parallel_mpi_tests: the tests of communicators, collectives, ring and gradient reduction once more, with
// ranks that are processes. Every process runs every test; process 0 shows them, the others show what fails. With
// --scenario NAME: one run that fails, instead; with --overlap BYTES_PER_SECOND DELAY: the measurement of tests/hosts.
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <string>

#include "parallel/launch.h"
#include "tests/parallel/mpi/overlap.h"
#include "tests/parallel/mpi/scenarios.h"
#include "tests/parallel/run_ranks.h"

using namespace ringtrain;

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
  ringtrain::testing::process_world() = &world;
  auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
  if (world.rank() != 0) {
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailuresAlone(world.rank()));
  }
  const bool failed = RUN_ALL_TESTS() != 0 || ::testing::UnitTest::GetInstance()->test_to_run_count() == 0;
  std::array<std::int64_t, 1> any{failed ? 1 : 0};
  all_reduce_max(world, any, {"result of all tests"});
  ringtrain::testing::process_world() = nullptr;
  return static_cast<int>(any[0]);
}

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  Launcher launcher = Launcher::from_environment();
  if (argc == 3 && std::string(argv[1]) == "--scenario") return ringtrain::testing::run_scenario(argv[2], launcher);
  if (argc == 4 && std::string(argv[1]) == "--overlap") {
    return ringtrain::testing::measure_overlap(launcher, {std::stod(argv[2]), std::stod(argv[3])});
  }
  int code = 1;
  try {
    launcher.launch({.ranks = launcher.processes(), .timeout_seconds = 60, .backend = Backend::mpi},
                    [&](Communicator& world) { code = run_all(world); });
    launcher.finish(code);
  } catch (const Error& error) {
    const Launcher::LastWords words = launcher.fail(error);
    if (words.told) std::fprintf(stderr, "%s%s\n", words.calls.c_str(), error.what());
    return static_cast<int>(error.code());
  }
  return code;
}
