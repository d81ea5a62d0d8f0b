// The first signal is a request, the second an end. Each case runs in a process of its own.
#include "framework/system/signals.h"

#include <gtest/gtest.h>
#include <signal.h>  // NOLINT(modernize-deprecated-headers): kill and sigaction are POSIX
#include <unistd.h>

#include <cstdlib>

#include "framework/error.h"

namespace ringtrain {
namespace {

class SignalsDeathTest : public testing::Test {
 protected:
  SignalsDeathTest() { testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

TEST_F(SignalsDeathTest, TheFirstIsARequest) {
  for (const int signal : {SIGINT, SIGTERM}) {
    EXPECT_EXIT(
        {
          const SignalGuard guard;
          if (requested_signal() != 0) std::_Exit(1);
          raise(signal);
          std::_Exit(requested_signal() == signal ? 0 : 2);
        },
        testing::ExitedWithCode(0), "");
  }
}

TEST_F(SignalsDeathTest, TheSecondEndsAtOnceWithItsOwnCode) {
  const auto twice = [](int first, int second) {
    const SignalGuard guard;
    raise(first);
    raise(second);
    std::_Exit(0);
  };
  EXPECT_EXIT(twice(SIGINT, SIGINT), testing::ExitedWithCode(130), "");
  EXPECT_EXIT(twice(SIGTERM, SIGTERM), testing::ExitedWithCode(143), "");
  EXPECT_EXIT(twice(SIGINT, SIGTERM), testing::ExitedWithCode(143), "");
}

TEST_F(SignalsDeathTest, AfterTheGuardTheFormerHandlersStand) {
  EXPECT_EXIT(
      {
        { const SignalGuard guard; }
        raise(SIGTERM);
        std::_Exit(0);
      },
      testing::KilledBySignal(SIGTERM), "");
}

TEST_F(SignalsDeathTest, ASecondGuardStartsAfresh) {
  EXPECT_EXIT(
      {
        {
          const SignalGuard guard;
          raise(SIGINT);
        }
        const SignalGuard guard;
        std::_Exit(requested_signal());
      },
      testing::ExitedWithCode(0), "");
  const SignalGuard guard;
  EXPECT_THROW(SignalGuard(), Error);
}

}  // namespace
}  // namespace ringtrain
