// The running block: its threads as fibers, which of them may continue, and what the others wait for. One kernel runs
// at a time in the process (run_kernel is called with the runtime's lock held), so there is only one Block, running().
//
// Threads switch only where they wait. A thread that has not begun runs on the fiber of a finished one, so a kernel
// without barriers never switches.
#pragma once

#include <array>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <random>
#include <source_location>
#include <string>
#include <vector>

#include "cuda_emulator.h"
#include "device/barriers.h"
#include "device/bulk_copies.h"
#include "device/fibers.h"
#include "device/mbarriers.h"
#include "device/registers.h"
#include "device/shared_writes.h"
#include "device/thread_copies.h"
#include "device/warp.h"
#include "device/wgmma.h"
#include "vector_types.h"

namespace cuda_emulator {

/// The parameters of a launch. thread: runs the kernel once, as the thread whose indices are set.
struct Launch {
  dim3 grid;
  dim3 block;
  std::size_t shared_bytes;
  const void* kernel;
  std::function<void()> thread;
  int compute_capability = 90;
};

/// Runs all blocks of a launch. Throws Error, or a thread's exception.
void run_kernel(const Launch& launch);

/// Why a thread does not continue. details: says what is missing, for a report; may be null.
struct Waiting {
  const char* operation;
  std::source_location where;
  std::string (*details)(const void* object, int thread) = nullptr;
  const void* object = nullptr;
};

class Block {
 public:
  static constexpr int max_threads = 1024;
  static constexpr int warp_lanes = 32;

  /// Runs block `index` of the launch to its end.
  void run(const Launch& launch, uint3 index);

  int threads() const { return threads_; }
  int unfinished() const { return threads_ - finished_; }
  /// The running thread's index in the block.
  int thread() const { return current_; }
  int lane() const { return current_ % warp_lanes; }
  const Launch& launch() const { return *launch_; }

  Warp& warp() { return warps_[static_cast<std::size_t>(current_ / warp_lanes)]; }
  Barriers& barriers() { return barriers_; }
  ThreadCopies& copies() { return copies_[static_cast<std::size_t>(current_)]; }
  Mbarriers& mbarriers() { return mbarriers_; }
  BulkLoads& loads() { return loads_; }
  BulkStores& stores() { return stores_[static_cast<std::size_t>(current_)]; }
  Warpgroups& warpgroups() { return warpgroups_; }
  Registers& registers() { return registers_; }
  SharedWrites& writes() { return writes_; }
  void* shared() const { return shared_.get(); }

  /// The running thread has made its writes to shared memory visible to TMA; whether any thread has.
  void fence_proxy() {
    proxy_fenced_ = true;
    writes_.fence();
  }
  bool proxy_fenced() const { return proxy_fenced_; }
  /// Throws Error if the device is older than Hopper.
  void need_hopper(const char* what);

  /// Stops the running thread until another one calls wake() for it.
  void wait(const Waiting& why);
  void wake(int thread);
  /// The running thread polls for data that another thread will write: lets it continue only when no other can, or
  /// another one calls wake() for it.
  void spin(const Waiting& why);
  /// Returns how often no thread could continue.
  int stalls() const { return stalls_; }
  /// Lets others run first if the order of threads is shuffled. Called by the thread that completes a collective.
  void give_way();
  /// Throws Error that names the kernel, the block, the thread, and the source location.
  [[noreturn]] void fail(const std::string& what, const std::source_location& where);
  [[noreturn]] void fail(const std::string& what);

 private:
  enum class State : std::uint8_t { not_begun, ready, running, waiting, finished };
  struct Worker {
    explicit Worker(Block& of) : block(of), fiber(work, this) {}
    static void work(void* self);
    Block& block;
    int thread = -1;
    Fiber fiber;
  };
  struct Thread {
    State state = State::not_begun;
    Worker* worker = nullptr;
    Waiting why{};
    uint3 index{};
  };
  struct Free {
    void operator()(void* memory) const;
  };

  void make_ready(int thread);
  void prepare(const Launch& launch, uint3 index);
  int next_ready();
  void begin(int thread, Worker& worker);
  void run_thread();
  void finish_thread();
  void end();
  bool go_on_after_stall();
  void unwind();
  std::string place(int thread) const;
  std::string deadlock() const;

  const Launch* launch_ = nullptr;
  uint3 index_{};
  int threads_ = 0, finished_ = 0, current_ = -1;
  std::array<Thread, max_threads> thread_{};
  std::array<std::uint64_t, max_threads / 64> ready_{};
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<Worker*> idle_;
  std::exception_ptr error_;
  bool unwinding_ = false;
  int chosen_ = -1;  // by an idle worker, for the loop of run()
  std::mt19937_64 random_;
  ThreadOrder order_ = ThreadOrder::forward;

  std::unique_ptr<void, Free> shared_;
  Barriers barriers_{*this};
  std::vector<Warp> warps_;
  std::vector<ThreadCopies> copies_;
  Mbarriers mbarriers_{*this};
  BulkLoads loads_{*this};
  std::vector<BulkStores> stores_;
  Warpgroups warpgroups_{*this};
  Registers registers_{*this};
  SharedWrites writes_{*this};
  bool proxy_fenced_ = false;
  std::vector<int> spinning_;
  int spins_ = 0;  // stalls since a thread that does not spin continued
  int stalls_ = 0;

  friend void run_kernel(const Launch& launch);
};

/// Thrown by a thread that ends the kernel and its device.
struct StoppedKernel {};

/// The running block. Throws Error if no kernel runs.
Block& running();

}  // namespace cuda_emulator
