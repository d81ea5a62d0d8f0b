// Launching ranks as threads: all run, all end, and the first error is rethrown unchanged.
#include "parallel/launch/launch.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "framework/cores.h"
#include "parallel/launch/agreement.h"
#include "parallel/launch/communicator_factory.h"
#include "tests/support/error_of.h"
#include "tests/support/wait_until.h"

namespace ringtrain {
namespace {

/// Returns the message with which this many ranks end; its error must have this code.
std::string error_of(ExitCode code, int ranks, const std::function<void(Communicator&)>& body) {
  return testing::error_of(code, [&] { launch_threads({.ranks = ranks, .timeout_seconds = 120}, body); });
}

TEST(Launch, RunsEveryRankOnce) {
  for (const int ranks : {1, 2, 7}) {
    std::mutex mutex;
    std::multiset<int> seen;
    std::set<std::thread::id> threads;
    launch_threads({.ranks = ranks}, [&](Communicator& world) {
      EXPECT_EQ(world.size(), ranks);
      world.barrier({});  // all of them at once
      const std::lock_guard lock(mutex);
      seen.insert(world.rank());
      threads.insert(std::this_thread::get_id());
    });
    EXPECT_EQ(seen.size(), static_cast<std::size_t>(ranks));
    EXPECT_EQ(std::set<int>(seen.begin(), seen.end()).size(), seen.size());
    EXPECT_EQ(threads.size(), seen.size());
  }
}

TEST(Launch, OneRanksErrorEndsAllAsItIs) {
  const auto start = std::chrono::steady_clock::now();
  const auto body = [](Communicator& world) {
    if (world.rank() == 2) fail(ExitCode::checkpoint, "rank 2 cannot save");
    world.barrier({});
  };
  EXPECT_EQ(error_of(ExitCode::checkpoint, 4, body), "rank 2 cannot save");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST(Launch, TheFirstOfSeveralErrorsWins) {
  const auto body = [](Communicator& world) {
    const auto another_failed = [&] {
      try {
        world.throw_if_aborted();
      } catch (const Error&) {
        return true;
      }
      return false;
    };
    EXPECT_TRUE(world.rank() == 2 || testing::wait_until(another_failed));
    fail(ExitCode::data, "error of rank {}", world.rank());
  };
  EXPECT_EQ(error_of(ExitCode::data, 3, body), "error of rank 2");
}

TEST(Launch, OtherExceptionsEndAllRanks) {
  const auto with_a_sentence = [](Communicator& world) {
    if (world.rank() == 1) throw std::out_of_range("index 7 of 5");
    world.barrier({});
  };
  EXPECT_EQ(error_of(ExitCode::internal, 2, with_a_sentence), "rank 1: index 7 of 5");
  const auto without = [](Communicator& world) {
    if (world.rank() == 0) throw 42;
    world.barrier({});
  };
  error_of(ExitCode::usage, 2, without);  // this library throws no such object, so the program did
}

TEST(Launch, ARankThatComputesOnEndsWithTheProcess) {
  const auto body = [](Communicator& world) {
    if (world.rank() == 0) fail(ExitCode::numeric, "rank 0 sees NaN");
    std::this_thread::sleep_for(std::chrono::seconds(100));  // it computes
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(launch_threads({.ranks = 3, .unwinding_seconds = 0.3}, body), ::testing::ExitedWithCode(5),
              "2 of 3 ranks did not stop in time, so the process ends: rank 0 sees NaN");
}

TEST(Launch, TimeInWhichTheProcessIsStoppedIsNotWaiting) {
  const auto run = [] {
    launch_threads({.ranks = 2, .timeout_seconds = 3}, [](Communicator& world) {
      const pid_t process = ::getpid(), child = world.rank() == 1 ? ::fork() : -1;  // meanwhile, rank 0 waits
      if (child == 0) {
        ::kill(process, SIGSTOP);
        ::sleep(4);  // longer than the timeout
        ::_exit(::kill(process, SIGCONT));
      }
      if (child > 0) ::waitpid(child, nullptr, 0);
      if (child > 0) ::sleep(1);  // rank 0 looks again at how long it has waited
      world.barrier({});
    });
    std::exit(0);
  };
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(run(), ::testing::ExitedWithCode(0), "");
}

TEST(Launch, ReportsWhatEachRankDidLast) {
  std::string calls = "old";
  launch_threads(
      {.ranks = 2}, [](Communicator&) {}, &calls);
  EXPECT_EQ(calls, "") << "nothing failed";
  const auto body = [](Communicator& world) {
    std::vector<float> buffer(3);
    const TensorView view = host_view(buffer.data(), {3});
    const int from = world.rank() == 1 ? 0 : no_peer;
    const Request old = world.exchange({}, no_peer, view, from, {"old message", 3});
    for (int i = 0; i < 30; ++i) world.barrier({"early barrier", i});
    world.exchange({}, no_peer, view, from, {"late message", 4, 2});
    world.wait(old);
    if (world.rank() == 0) world.barrier({"last barrier"});
  };
  EXPECT_THROW(launch_threads({.ranks = 2, .timeout_seconds = 1}, body, &calls), Error);
  for (const char* words :
       {"rank 0 of 2:\n", "rank 1 of 2:\n", "(last barrier)", "(old message, layer 3); last calls",
        "early barrier, layer 15\n", "late message, layer 4, hop 2; 12 bytes from rank 0 (in progress)\n"}) {
    EXPECT_NE(calls.find(words), std::string::npos) << words << "\n" << calls;
  }
  EXPECT_EQ(calls.find("early barrier, layer 14\n"), std::string::npos) << "16 calls are kept";
}

TEST(Launch, ALongValueIsShownWhereItDiffers) {
  const std::string end(100, 'a');
  testing::expect_error(ExitCode::usage, "is ..." + end + "0 on rank 0, and ..." + end + "1 here", [] {
    launch_threads({.ranks = 2}, [](Communicator& world) {
      require_agreement(world, {{"a key", std::string(300, 'a') + std::to_string(world.rank())}});
    });
  });
}

TEST(Launch, NcclIsPlannedOnlyForGpus) {
  EXPECT_TRUE(nccl_is_planned({.sequence = 4, .backend = Backend::nccl}, Device::cuda(0)));
  EXPECT_FALSE(nccl_is_planned({.backend = Backend::automatic}, Device::cpu()));
  EXPECT_FALSE(nccl_is_planned({.backend = Backend::threads}, Device::cuda(0)));
}

TEST(Launch, ThreadsPerRank) {
  EXPECT_EQ(threads_per_rank(3, 8), 3);
  EXPECT_EQ(threads_per_rank(0, 100000), 1);
  EXPECT_EQ(threads_per_rank(0, 1), available_cores());
}

TEST(Launch, MoreThreadsThanCoresAreReported) {
  EXPECT_EQ(oversubscription(2, 2, 4), "");
  EXPECT_EQ(oversubscription(1, 1, 1), "");
  const std::string said = oversubscription(4, 2, 6);
  EXPECT_TRUE(said.starts_with("8 compute threads (4 ranks x 2) share 6 cores: ")) << said;
}

}  // namespace
}  // namespace ringtrain
