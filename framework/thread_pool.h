// A rank's threads. run() distributes numbered tasks. The result of a task must depend only on its number, never on the
// worker, so the bits of a result do not depend on the number of threads.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <type_traits>
#include <vector>

#include "framework/error.h"

namespace ringtrain {

class Thread;  // framework/threads.h

class ThreadPool {
 public:
  /// Starts workers - 1 threads; the caller of run() is the first worker. Throws Error(usage) if it cannot, or if
  /// workers is below 1.
  explicit ThreadPool(int workers, const CallerLine& line = CallerLine::current());
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  /// Returns the number of threads that work, including the caller's.
  int workers() const { return workers_; }

  /// Calls body(task, worker) for every task in [0, tasks), worker in [0, workers()), and returns when all are done.
  /// Rethrows the first exception of a task. Only the owning rank's thread calls it, and never from inside a task.
  template <class Body>
  void run(std::int64_t tasks, Body&& body) {
    using Function = std::remove_reference_t<Body>;
    execute(tasks,
            {[](void* closure, std::int64_t task, int worker) { (*static_cast<Function*>(closure))(task, worker); },
             const_cast<void*>(static_cast<const void*>(&body))});
  }

 private:
  struct Job {
    void (*call)(void*, std::int64_t, int) = nullptr;
    void* closure = nullptr;
  };
  /// Ends all threads that have been started.
  void end();
  void execute(std::int64_t tasks, Job job);
  void work(int worker);
  void take_tasks(const Job& job, std::int64_t tasks, int worker);
  bool may_spin() const;

  const int workers_, cores_;
  std::vector<Thread> threads_;
  std::mutex mutex_;
  std::condition_variable start_, finished_;
  Job job_;
  std::int64_t tasks_ = 0;
  std::atomic<std::int64_t> next_{0};
  std::atomic<std::uint64_t> generation_{0};
  std::atomic<int> busy_{0};
  bool stop_ = false;
  std::exception_ptr failure_;
};

}  // namespace ringtrain
