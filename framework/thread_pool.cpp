#include "framework/thread_pool.h"

#include <chrono>
#include <utility>

#include "framework/cores.h"
#include "framework/threads.h"

namespace ringtrain {

namespace {

/// The number of workers in all pools of this process. If it exceeds the number of cores, a spinning worker takes time
/// from another one.
std::atomic<int> workers_of_process{0};

/// Waits until there() is true, for at most some tens of microseconds: less than a thread takes to fall asleep and wake
/// up, and more than passes between two products of a decode step.
template <class Condition>
void spin_until(Condition&& there) {
  constexpr auto longest = std::chrono::microseconds(50);
  const auto start = std::chrono::steady_clock::now();
  do {
    for (int i = 0; i < 32; ++i) {
      if (there()) return;
#ifdef __x86_64__
      __builtin_ia32_pause();
#endif
    }
  } while (std::chrono::steady_clock::now() - start < longest);
}

}  // namespace

ThreadPool::ThreadPool(int workers, const CallerLine& line) : workers_(workers), cores_(available_cores()) {
  if (workers < 1) refuse_call(line, fmt::format("a ThreadPool cannot have {} workers; it needs 1 or more", workers));
  workers_of_process.fetch_add(workers);
  threads_.reserve(workers - 1);
  try {
    for (int worker = 1; worker < workers; ++worker) {
      threads_.push_back(start_thread(ExitCode::usage,
                                      fmt::format("compute thread {} of the {} in a rank", worker + 1, workers),
                                      [this, worker] { work(worker); }));
    }
  } catch (...) {
    end();
    throw;
  }
}

ThreadPool::~ThreadPool() {
  end();
}

void ThreadPool::end() {
  workers_of_process.fetch_sub(workers_);
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  start_.notify_all();
  for (Thread& thread : threads_) thread.join();
}

bool ThreadPool::may_spin() const {
  return workers_of_process.load(std::memory_order_relaxed) <= cores_;
}

void ThreadPool::take_tasks(const Job& job, std::int64_t tasks, int worker) {
  try {
    for (std::int64_t task; (task = next_.fetch_add(1, std::memory_order_relaxed)) < tasks;) {
      job.call(job.closure, task, worker);
    }
  } catch (...) {
    std::lock_guard lock(mutex_);
    if (!failure_) failure_ = std::current_exception();
    next_.store(tasks, std::memory_order_relaxed);
  }
}

void ThreadPool::execute(std::int64_t tasks, Job job) {
  if (threads_.empty() || tasks <= 1) {
    for (std::int64_t task = 0; task < tasks; ++task) job.call(job.closure, task, 0);
    return;
  }
  {
    std::lock_guard lock(mutex_);
    job_ = job;
    tasks_ = tasks;
    next_.store(0, std::memory_order_relaxed);
    busy_ = static_cast<int>(threads_.size());
    failure_ = nullptr;
    ++generation_;
  }
  start_.notify_all();
  take_tasks(job, tasks, 0);
  if (may_spin()) spin_until([this] { return busy_.load(std::memory_order_relaxed) == 0; });
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [this] { return busy_ == 0; });
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void ThreadPool::work(int worker) {
  std::uint64_t seen = 0;
  while (true) {
    if (may_spin()) spin_until([&] { return generation_.load(std::memory_order_relaxed) != seen; });
    std::unique_lock lock(mutex_);
    start_.wait(lock, [&] { return stop_ || generation_ != seen; });
    if (stop_) return;
    seen = generation_;
    const Job job = job_;
    const std::int64_t tasks = tasks_;
    lock.unlock();
    take_tasks(job, tasks, worker);
    lock.lock();
    if (--busy_ == 0) finished_.notify_one();
  }
}

}  // namespace ringtrain
