// Switches between the threads of a block.
#include "device/block.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <map>
#include <new>
#include <numeric>

#include "api/settings.h"
#include "api/symbols.h"
#include "cuda_emulator_builtins.h"
#include "cuda_emulator_device.h"

uint3 threadIdx;
uint3 blockIdx;
dim3 blockDim;
dim3 gridDim;

namespace cuda_emulator {

namespace {

Block* the_block = nullptr;  // while a kernel runs

constexpr int max_spins = 1000;

// Ends the threads of a block in which another has failed.
struct Unwind {};

std::string text(uint3 v) {
  return fmt::format("({}, {}, {})", v.x, v.y, v.z);
}

std::string text(const std::source_location& where) {
  const char* file = std::strrchr(where.file_name(), '/');
  return fmt::format("{}:{}", file == nullptr ? where.file_name() : file + 1, where.line());
}

}  // namespace

Block& running() {
  if (the_block == nullptr) throw Error("a device function was called where no kernel runs");
  return *the_block;
}

void Block::Free::operator()(void* memory) const {
  std::free(memory);
}

// --- One block -----------------------------------------------------------------------------------------------------

void Block::prepare(const Launch& launch, uint3 index) {
  launch_ = &launch;
  index_ = index;
  threads_ = static_cast<int>(launch.block.x * launch.block.y * launch.block.z);
  finished_ = 0;
  current_ = chosen_ = -1;
  error_ = nullptr;
  unwinding_ = false;
  ready_.fill(0);
  uint3 at{0, 0, 0};
  for (int t = 0; t < threads_; ++t) {
    thread_[static_cast<std::size_t>(t)] = Thread{State::not_begun, nullptr, {}, at};
    ready_[static_cast<std::size_t>(t / 64)] |= std::uint64_t{1} << (t % 64);
    if (++at.x == launch.block.x) {
      at.x = 0;
      if (++at.y == launch.block.y) {
        at.y = 0;
        ++at.z;
      }
    }
  }
  if (shared_) std::memset(shared_.get(), 0xff, launch.shared_bytes);
  barriers_.reset();
  warps_.resize(static_cast<std::size_t>((threads_ + warp_lanes - 1) / warp_lanes));
  for (std::size_t w = 0; w < warps_.size(); ++w) {
    const int first = static_cast<int>(w) * warp_lanes;
    warps_[w].reset(*this, first, threads_ - first);
  }
  copies_.resize(std::max(copies_.size(), static_cast<std::size_t>(threads_)));
  stores_.resize(copies_.size());
  for (int t = 0; t < threads_; ++t) {
    copies_[static_cast<std::size_t>(t)].reset();
    stores_[static_cast<std::size_t>(t)].reset();
  }
  mbarriers_.reset();
  loads_.reset();
  warpgroups_.reset(threads_);
  registers_.reset(threads_);
  writes_.reset(shared_.get(), launch.shared_bytes, settings().proxies);
  proxy_fenced_ = false;
  spinning_.clear();
  spins_ = stalls_ = 0;
  blockIdx = index;
}

void Block::run(const Launch& launch, uint3 index) {
  prepare(launch, index);
  while (finished_ < threads_) {
    const int next = chosen_ >= 0 ? chosen_ : next_ready();
    chosen_ = -1;
    if (next < 0) {
      if (go_on_after_stall()) continue;
      break;
    }
    Thread& thread = thread_[static_cast<std::size_t>(next)];
    if (thread.state == State::not_begun) {
      if (idle_.empty()) {
        workers_.push_back(std::make_unique<Worker>(*this));
        idle_.push_back(workers_.back().get());
      }
      Worker& worker = *idle_.back();
      idle_.pop_back();
      begin(next, worker);
      worker.fiber.resume();
    } else {
      current_ = next;
      thread.state = State::running;
      threadIdx = thread.index;
      thread.worker->fiber.resume();
    }
    if (error_) break;
  }
  if (error_) {
    unwind();
    std::rethrow_exception(error_);
  }
  end();
}

// No thread can continue: lands a copy for which one waits, or lets spinning threads check again. Otherwise sets
// error_.
bool Block::go_on_after_stall() {
  try {
    if (loads_.land_one_awaited()) return true;
    if (!spinning_.empty() && ++spins_ < max_spins) {
      ++stalls_;
      for (const int thread : spinning_) make_ready(thread);
      spinning_.clear();
      return true;
    }
    error_ = std::make_exception_ptr(Error(deadlock()));
  } catch (...) {
    error_ = std::current_exception();
  }
  return false;
}

// Bulk stores that were read but not written are written at the end of the block.
void Block::end() {
  if (loads_.under_way() > 0) {
    current_ = 0;
    fail(fmt::format("the block ends with {} loads by TMA under way, for which no thread waits", loads_.under_way()));
  }
  current_ = 0;
  registers_.check_whole_warpgroups();
  for (int t = 0; t < threads_; ++t) stores_[static_cast<std::size_t>(t)].finish();
}

// Removes one of the threads that can continue from the ready ones; -1: there is none.
int Block::next_ready() {
  const int words = (threads_ + 63) / 64;
  const auto take = [&](int w, int bit) {
    ready_[static_cast<std::size_t>(w)] &= ~(std::uint64_t{1} << bit);
    return w * 64 + bit;
  };
  const auto word = [&](int w) { return ready_[static_cast<std::size_t>(w)]; };
  if (order_ == ThreadOrder::backward) {
    for (int w = words - 1; w >= 0; --w) {
      if (word(w) != 0) return take(w, 63 - std::countl_zero(word(w)));
    }
    return -1;
  }
  int first = 0;
  if (order_ == ThreadOrder::shuffled) {  // the first one after a random index
    const int from = static_cast<int>(random_() % static_cast<unsigned>(threads_));
    const std::uint64_t rest = word(from / 64) & (~std::uint64_t{0} << (from % 64));
    if (rest != 0) return take(from / 64, std::countr_zero(rest));
    first = from / 64 + 1;
  }
  for (int i = 0; i < words; ++i) {
    const int w = first + i < words ? first + i : first + i - words;
    if (word(w) != 0) return take(w, std::countr_zero(word(w)));
  }
  return -1;
}

// --- Threads, on the fibers of workers -------------------------------------------------------------------------------

void Block::begin(int thread, Worker& worker) {
  Thread& begun = thread_[static_cast<std::size_t>(thread)];
  worker.thread = thread;
  begun.worker = &worker;
  begun.state = State::running;
  current_ = thread;
  threadIdx = begun.index;
}

void Block::Worker::work(void* self) {
  auto& worker = *static_cast<Worker*>(self);
  Block& block = worker.block;
  for (;;) {
    block.run_thread();
    // A thread that has not begun starts here; the loop of run() switches to any other.
    const int next = block.error_ || block.unwinding_ ? -1 : block.next_ready();
    if (next >= 0 && block.thread_[static_cast<std::size_t>(next)].state == State::not_begun) {
      block.begin(next, worker);
      continue;
    }
    block.chosen_ = next;
    block.idle_.push_back(&worker);
    worker.fiber.suspend();
  }
}

void Block::run_thread() {
  const int thread = current_;
  try {
    launch_->thread();
    writes_.thread_stops();
    finish_thread();
  } catch (const Unwind&) {
  } catch (...) {
    if (!error_) error_ = std::current_exception();
  }
  thread_[static_cast<std::size_t>(thread)].state = State::finished;
}

void Block::finish_thread() {
  if (stores().unread() > 0) fail("the thread ends before its bulk stores have read shared memory (tma_store_wait)");
  if (warpgroups_.under_way(current_) > 0) fail("the thread ends with wgmma products under way (wgmma_wait)");
  spins_ = 0;
  ++finished_;
  warp().lane_finished(lane());
  barriers_.thread_finished();
}

// Ends all threads that have begun, so that their fibers are free again.
void Block::unwind() {
  unwinding_ = true;
  for (int t = 0; t < threads_; ++t) {
    Thread& thread = thread_[static_cast<std::size_t>(t)];
    if (thread.state != State::waiting && thread.state != State::ready) continue;
    current_ = t;
    thread.worker->fiber.resume();
  }
}

void Block::wait(const Waiting& why) {
  Thread& thread = thread_[static_cast<std::size_t>(current_)];
  writes_.thread_stops();
  thread.why = why;
  thread.state = State::waiting;
  thread.worker->fiber.suspend();
  if (unwinding_) throw Unwind{};
}

void Block::wake(int thread) {
  spins_ = 0;
  make_ready(thread);
}

void Block::make_ready(int thread) {
  thread_[static_cast<std::size_t>(thread)].state = State::ready;
  ready_[static_cast<std::size_t>(thread / 64)] |= std::uint64_t{1} << (thread % 64);
}

void Block::give_way() {
  if (order_ != ThreadOrder::shuffled) return;
  writes_.thread_stops();
  Thread& thread = thread_[static_cast<std::size_t>(current_)];
  wake(current_);
  thread.worker->fiber.suspend();
  if (unwinding_) throw Unwind{};
}

void Block::spin(const Waiting& why) {
  const int thread = current_;
  spinning_.push_back(thread);
  wait(why);
  std::erase(spinning_, thread);
}

void Block::need_hopper(const char* what) {
  if (launch_->compute_capability < 90) {
    fail(fmt::format("{} on a device of compute capability {}", what, launch_->compute_capability));
  }
}

// --- Reports -------------------------------------------------------------------------------------------------------

std::string Block::place(int thread) const {
  return fmt::format("kernel {}, block {}, thread {}", function_name(launch_->kernel), text(index_),
                     text(thread_[static_cast<std::size_t>(thread)].index));
}

void Block::fail(const std::string& what, const std::source_location& where) {
  throw Error(fmt::format("{} at {}: {}", place(current_), text(where), what));
}

void Block::fail(const std::string& what) {
  throw Error(fmt::format("{}: {}", place(current_), what));
}

std::string Block::deadlock() const {
  std::map<std::string, std::vector<int>> threads;  // by what they wait for
  for (int t = 0; t < threads_; ++t) {
    const Thread& thread = thread_[static_cast<std::size_t>(t)];
    std::string what = "have finished";
    if (thread.state == State::waiting) {
      what = fmt::format("wait at {} ({})", thread.why.operation, text(thread.why.where));
      if (thread.why.details != nullptr) what += ": " + thread.why.details(thread.why.object, t);
    }
    threads[what].push_back(t);
  }
  std::string report = fmt::format("deadlock in kernel {}, block {}:", function_name(launch_->kernel), text(index_));
  for (const auto& [what, which] : threads) {
    report += fmt::format("\n  {} threads (first {}, last {}) {}", which.size(), which.front(), which.back(), what);
  }
  return report;
}

// --- A launch ------------------------------------------------------------------------------------------------------

void run_kernel(const Launch& launch) {
  static auto& block = *new Block;  // its fibers stay suspended forever
  block.order_ = settings().threads;
  block.random_.seed(settings().threads_seed);
  void* shared = nullptr;  // of exactly the requested size, so that AddressSanitizer detects accesses beyond it
  if (launch.shared_bytes > 0 && posix_memalign(&shared, 1024, launch.shared_bytes) != 0) throw std::bad_alloc();
  block.shared_.reset(shared);
  const std::uint64_t blocks = std::uint64_t{launch.grid.x} * launch.grid.y * launch.grid.z;
  std::vector<std::uint64_t> shuffled;
  if (block.order_ == ThreadOrder::shuffled) {
    shuffled.resize(blocks);
    std::iota(shuffled.begin(), shuffled.end(), 0);
    std::shuffle(shuffled.begin(), shuffled.end(), block.random_);
  }
  struct Running {
    explicit Running(Block& of) { the_block = &of; }
    ~Running() {
      the_block->shared_.reset();
      the_block = nullptr;
    }
  } const now(block);
  blockDim = launch.block;
  gridDim = launch.grid;
  for (std::uint64_t i = 0; i < blocks; ++i) {
    const std::uint64_t at = block.order_ == ThreadOrder::forward    ? i
                             : block.order_ == ThreadOrder::backward ? blocks - 1 - i
                                                                     : shuffled[i];
    block.run(launch,
              {static_cast<unsigned>(at % launch.grid.x), static_cast<unsigned>(at / launch.grid.x % launch.grid.y),
               static_cast<unsigned>(at / launch.grid.x / launch.grid.y)});
  }
}

}  // namespace cuda_emulator
