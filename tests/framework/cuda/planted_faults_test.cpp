// Intentional faults, to test scripts/gpu-check: RINGTRAIN_PLANT=FAULT:SUITE.TEST[,...] makes these tests of this
// program fail. hang: prints nothing more, forever. crash: the process aborts. slow: prints a word every second,
// forever. lost (in an emulated build): the 4th arrival at an mbarrier is lost, so a kernel waits for it forever.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <thread>

#include "tests/support/gpu.h"

namespace ringtrain::testing {
namespace {

class PlantedFaults final : public ::testing::EmptyTestEventListener {
 public:
  explicit PlantedFaults(std::string planted) : planted_(std::move(planted)) {}

 private:
  void OnTestStart(const ::testing::TestInfo& test) override {
    const std::string name = std::string(":") + test.test_suite_name() + "." + test.name();
    std::istringstream all(planted_);
    for (std::string one; std::getline(all, one, ',');) {
      if (one.ends_with(name)) happen(one.substr(0, one.size() - name.size()));
    }
  }
#if defined(RINGTRAIN_CUDA_EMULATED)
  void OnTestEnd(const ::testing::TestInfo&) override {
    cuda_emulator::lose(cuda_emulator::Signal::arrival, 0);
  }
#endif

  static void happen(const std::string& fault) {
    if (fault == "crash") std::abort();
    while (fault == "hang") std::this_thread::sleep_for(std::chrono::seconds(1));
    while (fault == "slow") {
      std::puts("             still at it");
      std::fflush(stdout);
      std::this_thread::sleep_for(std::chrono::seconds(1));
    }
#if defined(RINGTRAIN_CUDA_EMULATED)
    if (fault == "lost") return cuda_emulator::lose(cuda_emulator::Signal::arrival, 4);
#endif
    std::fprintf(stderr, "RINGTRAIN_PLANT: there is no fault %s\n", fault.c_str());
    std::_Exit(2);
  }

  const std::string planted_;
};

[[maybe_unused]] const bool listens = [] {
  if (const char* const planted = std::getenv("RINGTRAIN_PLANT")) {
    ::testing::UnitTest::GetInstance()->listeners().Append(new PlantedFaults(planted));  // owned by gtest
  }
  return true;
}();

}  // namespace
}  // namespace ringtrain::testing
