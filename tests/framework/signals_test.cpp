// The first signal is a request; the second ends the process. Each case runs in a separate process.
#include "framework/system/signals.h"

#include <gtest/gtest.h>
#include <signal.h>  // NOLINT(modernize-deprecated-headers): kill and sigaction are POSIX
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "framework/error.h"

namespace ringtrain {
namespace {

class SignalsDeathTest : public ::testing::Test {
 protected:
  SignalsDeathTest() { ::testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

TEST_F(SignalsDeathTest, TheFirstIsARequest) {
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGXCPU, SIGPWR}) {
    EXPECT_EXIT(
        {
          const SignalGuard guard;
          if (requested_signal() != 0) std::_Exit(1);
          announce_signals({.program = "train", .first = "finishing step 8", .second = ""});
          ::close(STDERR_FILENO);  // its terminal is gone
          errno = 0;
          raise(signal);
          std::_Exit(requested_signal() == signal && errno == 0 ? 0 : 2);
        },
        ::testing::ExitedWithCode(0), "");
  }
}

TEST_F(SignalsDeathTest, TheSecondEndsAtOnceUnsaved) {
  const auto twice = [](int first, int second) {
    const SignalGuard guard;
    raise(first);
    raise(second);
    std::_Exit(0);
  };
  EXPECT_EXIT(twice(SIGINT, SIGINT), ::testing::ExitedWithCode(8), "^$");
  EXPECT_EXIT(twice(SIGTERM, SIGTERM), ::testing::ExitedWithCode(8), "^$");
  EXPECT_EXIT(twice(SIGINT, SIGTERM), ::testing::ExitedWithCode(8), "^$");
}

TEST_F(SignalsDeathTest, SayWhatTheyCause) {
  const auto announced = [](const std::vector<int>& signals, bool saved) {
    const SignalGuard guard;
    announce_signals({.program = "train", .first = "an older notice", .second = ""});
    announce_signals(
        {.program = "train", .first = "finishing step 8", .second = "ended; step 5 is saved", .saved = saved});
    for (const int signal : signals) raise(signal);
    std::_Exit(0);
  };
  const std::string first =
      "train: SIGINT: finishing step 8; press Ctrl-C or send SIGTERM again to end without saving\n";
  const std::string last = "train: SIGTERM: ended; step 5 is saved\n";
  EXPECT_EXIT(announced({SIGINT}, false), ::testing::ExitedWithCode(0), "^" + first + "$");
  EXPECT_EXIT(announced({SIGINT, SIGTERM}, false), ::testing::ExitedWithCode(8), "^" + first + last + "$");
  EXPECT_EXIT(announced({SIGINT, SIGTERM}, true), ::testing::ExitedWithCode(143), "^" + first + last + "$");
  // Warnings end nothing, and are printed once.
  EXPECT_EXIT(announced({SIGUSR1, SIGUSR1, SIGHUP}, false), ::testing::ExitedWithCode(0),
              "^train: SIGUSR1: finishing step 8\n$");
  EXPECT_EXIT(announced({SIGUSR1, SIGINT}, false), ::testing::ExitedWithCode(0), "SIGUSR1: finishing step 8\n" + first);
  EXPECT_EXIT(
      {
        const SignalGuard guard;
        const std::string text(5000, 'x');
        announce_signals({.program = text, .first = text, .second = text});
        raise(SIGUSR1);
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(0), "^x{200}: SIGUSR1: x{200}\n$");
}

TEST_F(SignalsDeathTest, WarningsNeverEndARunThatSaves) {
  EXPECT_EXIT(
      {
        const SignalGuard guard;
        for (const int signal : {SIGHUP, SIGUSR1, SIGXCPU, SIGXCPU, SIGPWR, SIGHUP, SIGUSR1}) raise(signal);
        raise(SIGTERM);  // as Slurm ends a job after a warning
        std::_Exit(requested_signal() == SIGHUP ? 0 : 2);
      },
      ::testing::ExitedWithCode(0), "");
  EXPECT_EXIT(
      {
        const SignalGuard guard;
        for (const int signal : {SIGUSR1, SIGTERM, SIGTERM}) raise(signal);
        std::_Exit(0);
      },
      ::testing::ExitedWithCode(8), "");
}

TEST_F(SignalsDeathTest, AnIgnoredHangUpStaysIgnored) {
  EXPECT_EXIT(
      {
        std::signal(SIGHUP, SIG_IGN);
        set_program_signals();
        raise(SIGHUP);
        const SignalGuard guard;
        raise(SIGHUP);
        std::_Exit(requested_signal() == 0 ? 0 : 2);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(SignalsDeathTest, BeforeAndAfterTheRunAProgramTakesWarnings) {
  for (const int signal : {SIGHUP, SIGUSR1, SIGXCPU, SIGPWR}) {
    EXPECT_EXIT(
        {
          std::signal(SIGHUP, SIG_DFL);
          set_program_signals();
          raise(signal);
          std::_Exit(0);
        },
        ::testing::ExitedWithCode(143), "");
    EXPECT_EXIT(
        {
          set_program_signals();
          { const SignalGuard guard; }
          raise(signal);  // the run is over: its end has its own code
          std::_Exit(0);
        },
        ::testing::ExitedWithCode(0), "");
  }
}

TEST_F(SignalsDeathTest, AWriteWithoutAReaderIsAnError) {
  EXPECT_EXIT(
      {
        set_program_signals();
        int ends[2];
        if (pipe(ends) != 0) std::_Exit(1);
        close(ends[0]);
        std::_Exit(write(ends[1], "x", 1) < 0 && errno == EPIPE ? 0 : 2);
      },
      ::testing::ExitedWithCode(0), "");
}

TEST_F(SignalsDeathTest, AfterTheGuardTheEarlierHandlersReturn) {
  EXPECT_EXIT(
      {
        { const SignalGuard guard; }
        raise(SIGTERM);
        std::_Exit(0);
      },
      ::testing::KilledBySignal(SIGTERM), "");
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
      ::testing::ExitedWithCode(0), "");
  const SignalGuard guard;
  EXPECT_THROW(SignalGuard(), Error);
}

}  // namespace
}  // namespace ringtrain
