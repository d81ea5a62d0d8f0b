#include "framework/thread_pool.h"

#include <utility>

#include "framework/error.h"
#include "framework/threads.h"

namespace ringtrain {

namespace {

void end_workers(std::vector<std::thread>& threads, std::mutex& mutex, bool& stop, std::condition_variable& start) {
  {
    std::lock_guard lock(mutex);
    stop = true;
  }
  start.notify_all();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

ThreadPool::ThreadPool(int workers) {
  ensure(workers >= 1, "a thread pool has at least one worker");
  threads_.reserve(static_cast<std::size_t>(workers - 1));
  try {
    for (int worker = 1; worker < workers; ++worker) {
      threads_.push_back(start_thread(ExitCode::usage,
                                      fmt::format("compute thread {} of the {} of a rank", worker + 1, workers),
                                      [this, worker] { work(worker); }));
    }
  } catch (...) {
    end_workers(threads_, mutex_, stop_, start_);
    throw;
  }
}

ThreadPool::~ThreadPool() {
  end_workers(threads_, mutex_, stop_, start_);
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
  std::unique_lock lock(mutex_);
  finished_.wait(lock, [this] { return busy_ == 0; });
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void ThreadPool::work(int worker) {
  std::uint64_t seen = 0;
  std::unique_lock lock(mutex_);
  while (true) {
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
