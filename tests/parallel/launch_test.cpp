// Launching ranks as threads: everyone runs, everyone ends, and the first error comes out as it went in.
#include "parallel/launch.h"

#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

namespace ringtrain {
namespace {

ExitCode code_of(int ranks, const std::function<void(Communicator&)>& body, std::string* sentence = nullptr) {
  try {
    launch_threads({.ranks = ranks, .timeout_seconds = 120}, body);
  } catch (const Error& error) {
    if (sentence) *sentence = error.what();
    return error.code();
  }
  return ExitCode::done;
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
  std::string sentence;
  const auto start = std::chrono::steady_clock::now();
  EXPECT_EQ(code_of(
                4,
                [](Communicator& world) {
                  if (world.rank() == 2) fail(ExitCode::checkpoint, "rank 2 cannot save");
                  world.barrier({});
                },
                &sentence),
            ExitCode::checkpoint);
  EXPECT_EQ(sentence, "rank 2 cannot save");
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST(Launch, TheFirstOfSeveralErrorsWins) {
  std::string sentence;
  EXPECT_EQ(code_of(
                3,
                [](Communicator& world) {
                  std::this_thread::sleep_for(std::chrono::milliseconds(100 * (2 - world.rank())));
                  fail(ExitCode::data, "error of rank {}", world.rank());
                },
                &sentence),
            ExitCode::data);
  EXPECT_EQ(sentence, "error of rank 2");
}

TEST(Launch, OtherExceptionsAreOurOwnFault) {
  std::string sentence;
  EXPECT_EQ(code_of(
                2,
                [](Communicator& world) {
                  if (world.rank() == 1) throw std::out_of_range("index 7 of 5");
                  world.barrier({});
                },
                &sentence),
            ExitCode::internal);
  EXPECT_EQ(sentence, "rank 1: index 7 of 5");
  EXPECT_EQ(code_of(2,
                    [](Communicator& world) {
                      if (world.rank() == 0) throw 42;
                      world.barrier({});
                    }),
            ExitCode::internal);
}

TEST(Launch, ThreadsPerRank) {
  EXPECT_EQ(threads_per_rank(3, 8), 3);
  EXPECT_EQ(threads_per_rank(0, 100000), 1);
  EXPECT_EQ(threads_per_rank(0, 1), std::max(1, static_cast<int>(std::thread::hardware_concurrency())));
}

}  // namespace
}  // namespace ringtrain
