// Every task runs once for any number of workers; a task's exception reaches the caller and has no later effects.
#include "framework/thread_pool.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <stdexcept>
#include <thread>
#include <vector>

#include "framework/error.h"
#include "framework/system/run_aside.h"
#include "tests/support/error_of.h"

namespace ringtrain {
namespace {

/// While it lives, each new thread requests more address space than there is, so none can be started.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t huge = before_;
    pthread_attr_setstacksize(&huge, std::size_t{1} << 62);
    works_ = pthread_setattr_default_np(&huge) == 0;
  }
  ~NoThreads() { pthread_setattr_default_np(&before_); }
  bool works() const { return works_; }

 private:
  pthread_attr_t before_{};
  bool works_ = false;
};

TEST(ThreadPool, WithoutThreadsTheErrorSaysHowManyWereWanted) {
#ifdef RINGTRAIN_SANITIZED
  GTEST_SKIP() << "sanitizers make threads in their own way";
#endif
  {
    const NoThreads none;
    if (!none.works()) GTEST_SKIP() << "the size of new threads' stacks cannot be set here";
    const std::string sentence = testing::error_of(ExitCode::usage, [] { ThreadPool pool(5); });
    EXPECT_NE(sentence.find("compute thread 2 of the 5 in a rank"), std::string::npos) << sentence;
    EXPECT_NE(sentence.find("ulimit -u"), std::string::npos) << sentence;
    EXPECT_NO_THROW(ThreadPool(1));
    const std::thread::id here = std::this_thread::get_id();
    EXPECT_EQ(run_aside([] { return std::this_thread::get_id(); }).get(), here) << "the work is done all the same";
  }
  EXPECT_EQ(ThreadPool(2).workers(), 2);
}

TEST(ThreadPool, EveryTaskRunsOnceOnAWorkerThatExists) {
  for (const int workers : {1, 2, 3, 8}) {
    ThreadPool pool(workers);
    EXPECT_EQ(pool.workers(), workers);
    for (const int tasks : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> runs(tasks);
      std::atomic<bool> known_worker = true;
      pool.run(tasks, [&](std::int64_t task, int worker) {
        ++runs[task];
        if (worker < 0 || worker >= workers) known_worker = false;
      });
      for (const auto& count : runs) EXPECT_EQ(count.load(), 1);
      EXPECT_TRUE(known_worker);
    }
  }
}

TEST(ThreadPool, ReturnsWhenTheSlowestTaskIsDone) {
  ThreadPool pool(3);
  for (int repeat = 0; repeat < 10; ++repeat) {
    std::array<std::atomic<bool>, 3> done{};
    pool.run(3, [&](std::int64_t task, int worker) {
      // The caller of run() is done first, whichever task it got.
      std::this_thread::sleep_for(std::chrono::milliseconds(worker == 0 ? 2 : 10));
      done[task] = true;
    });
    for (const auto& task : done) ASSERT_TRUE(task.load());
  }
}

TEST(ThreadPool, NoTwoTasksShareAWorkerAtATime) {
  ThreadPool pool(4);
  std::vector<std::atomic<int>> inside(4);
  std::atomic<bool> shared = false;
  pool.run(2000, [&](std::int64_t task, int worker) {
    if (inside[worker].fetch_add(1) != 0) shared = true;
    volatile double x = static_cast<double>(task);
    for (int i = 0; i < 50; ++i) x = std::sqrt(x + 1);
    inside[worker].fetch_sub(1);
  });
  EXPECT_FALSE(shared);
}

TEST(ThreadPool, ResultsDoNotDependOnTheNumberOfWorkers) {
  const auto compute = [](int workers) {
    ThreadPool pool(workers);
    std::vector<double> result(257);
    for (int repeat = 0; repeat < 20; ++repeat) {
      pool.run(257, [&](std::int64_t task, int) {
        double& x = result[task];
        for (int i = 0; i < 100; ++i) x = std::sin(x + static_cast<double>(task) * 0.1);
      });
    }
    return result;
  };
  const std::vector<double> one = compute(1);
  for (const int workers : {2, 3, 5}) EXPECT_EQ(compute(workers), one);
}

TEST(ThreadPool, AnExceptionReachesTheCallerAndThePoolStaysUsable) {
  for (const int workers : {1, 2, 4}) {
    ThreadPool pool(workers);
    for (int repeat = 0; repeat < 50; ++repeat) {
      std::atomic<std::int64_t> runs = 0;
      constexpr std::int64_t tasks = 50'000'000;  // so many that no worker is done while another throws
      try {
        pool.run(tasks, [&](std::int64_t task, int) {
          ++runs;
          if (task == 37) throw std::runtime_error("task 37");
        });
        ADD_FAILURE() << "the exception was lost";
      } catch (const std::runtime_error& error) {
        EXPECT_STREQ(error.what(), "task 37");
      }
      ASSERT_LT(runs.load(), tasks);  // tasks that had not begun are dropped
      std::atomic<std::int64_t> sum = 0;
      pool.run(100, [&](std::int64_t task, int) { sum += task; });
      EXPECT_EQ(sum.load(), 4950);
    }
  }
}

TEST(ThreadPool, OneOfSeveralExceptionsIsThrown) {
  ThreadPool pool(4);
  EXPECT_THROW(pool.run(64, [](std::int64_t task, int) { throw static_cast<int>(task); }), int);
  pool.run(0, [](std::int64_t, int) {});
}

TEST(ThreadPool, ManyShortJobsInARowLoseNoTask) {
  ThreadPool pool(3);
  std::int64_t total = 0;
  for (int job = 0; job < 5000; ++job) {
    std::array<std::int64_t, 5> out{};
    pool.run(5, [&](std::int64_t task, int) { out[task] = task + job; });
    for (const std::int64_t x : out) total += x;
  }
  EXPECT_EQ(total, std::int64_t{5000} * 10 + std::int64_t{5} * (4999 * 5000 / 2));
}

TEST(ThreadPool, PoolsOfSeveralRanksDoNotMeet) {
  std::vector<std::thread> ranks;
  std::vector<std::int64_t> sums(4);
  for (std::size_t rank = 0; rank < 4; ++rank) {
    ranks.emplace_back([&, rank] {
      ThreadPool pool(2);
      for (int repeat = 0; repeat < 200; ++repeat) {
        std::array<std::int64_t, 16> out{};
        pool.run(16, [&](std::int64_t task, int) { out[task] = task; });
        for (const std::int64_t x : out) sums[rank] += x;
      }
    });
  }
  for (std::thread& rank : ranks) rank.join();
  for (const std::int64_t sum : sums) EXPECT_EQ(sum, 200 * 120);
}

}  // namespace
}  // namespace ringtrain
