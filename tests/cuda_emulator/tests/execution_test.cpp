// How blocks and threads run: indices, barriers, the warp, orders, shared memory, deadlocks.
#include <algorithm>
#include <numeric>

#include "support.h"

namespace {

using cuda_emulator::ThreadOrder;

class Execution : public EmulatorTest {};

__global__ void note_indices(int* to) {
  const unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  const unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  to[block * blockDim.x * blockDim.y * blockDim.z + thread] += static_cast<int>(1000 * block + thread);
}

TEST_F(Execution, EveryThreadOfEveryBlockRunsOnceInEveryOrder) {
  for (const ThreadOrder order : {ThreadOrder::forward, ThreadOrder::backward, ThreadOrder::shuffled}) {
    cuda_emulator::set_thread_order(order, 3);
    const DeviceArray<int> seen(std::vector<int>(2 * 3 * 4 * 5 * 6 * 2, 0));
    ASSERT_OK(run(note_indices, dim3(2, 3, 4), dim3(5, 6, 2), 0, seen.data()));
    const auto values = seen.values();
    for (int block = 0; block < 24; ++block) {
      for (int thread = 0; thread < 60; ++thread) {
        ASSERT_EQ(values[static_cast<std::size_t>(block * 60 + thread)], 1000 * block + thread);
      }
    }
  }
}

__global__ void note_order(int* order, int* count) {
  order[atomicAdd(count, 1)] = static_cast<int>(threadIdx.x);
}

TEST_F(Execution, TheOrderOfThreadsIsTheOneSet) {
  const auto order_of = [](ThreadOrder order, std::uint64_t seed) {
    cuda_emulator::set_thread_order(order, seed);
    const DeviceArray<int> seen(100), count(std::vector<int>{0});
    EXPECT_OK(run(note_order, 1, 100, 0, seen.data(), count.data()));
    return seen.values();
  };
  std::vector<int> ascending(100);
  std::iota(ascending.begin(), ascending.end(), 0);
  EXPECT_EQ(order_of(ThreadOrder::forward, 0), ascending);
  EXPECT_EQ(order_of(ThreadOrder::backward, 0), std::vector<int>(ascending.rbegin(), ascending.rend()));
  const auto shuffled = order_of(ThreadOrder::shuffled, 1);
  EXPECT_NE(shuffled, ascending);
  EXPECT_EQ(order_of(ThreadOrder::shuffled, 1), shuffled);
  EXPECT_NE(order_of(ThreadOrder::shuffled, 2), shuffled);
  auto sorted = shuffled;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(sorted, ascending);
}

// Sums x by halving, with the barrier in every round or without.
template <bool Barrier>
__global__ void tree_sum(const float* x, float* sum) {
  __shared__ float part[256];
  part[threadIdx.x] = x[threadIdx.x];
  for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
    if (Barrier) __syncthreads();
    if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
  }
  if (threadIdx.x == 0) *sum = part[0];
}

TEST_F(Execution, ABarrierHoldsInEveryOrderAndAMissingOneShows) {
  std::vector<float> x(256);
  std::iota(x.begin(), x.end(), 1.0f);
  const DeviceArray<float> in(x), out(1);
  for (const ThreadOrder order : {ThreadOrder::forward, ThreadOrder::backward, ThreadOrder::shuffled}) {
    cuda_emulator::set_thread_order(order, 5);
    ASSERT_OK(run(tree_sum<true>, 1, 256, 0, in.data(), out.data()));
    EXPECT_EQ(out.values()[0], 256 * 257 / 2);
    if (order == ThreadOrder::backward) continue;  // if thread 0 runs last, the sum happens to be right
    ASSERT_OK(run(tree_sum<false>, 1, 256, 0, in.data(), out.data()));
    EXPECT_NE(out.values()[0], 256 * 257 / 2);
  }
}

// Every thread reads its neighbor's value and then overwrites its own; the barrier in between is missing.
__global__ void rotate_in_place(int* x, int rounds) {
  for (int round = 0; round < rounds; ++round) {
    const int next = x[(threadIdx.x + 1) % blockDim.x];
    x[threadIdx.x] = next;
    __syncthreads();
  }
}

TEST_F(Execution, AMissingSecondBarrierShows) {
  for (const ThreadOrder order : {ThreadOrder::forward, ThreadOrder::backward, ThreadOrder::shuffled}) {
    cuda_emulator::set_thread_order(order, 11);
    std::vector<int> x(64), rotated(64);
    std::iota(x.begin(), x.end(), 0);
    for (int i = 0; i < 64; ++i) rotated[static_cast<std::size_t>(i)] = (i + 3) % 64;
    const DeviceArray<int> device(x);
    ASSERT_OK(run(rotate_in_place, 1, 64, 0, device.data(), 3));
    EXPECT_NE(device.values(), rotated);
  }
}

__global__ void early_exit(int* to) {
  if (threadIdx.x >= 40) return;
  __syncthreads();
  atomicAdd(to, 1);
}

TEST_F(Execution, ThreadsThatHaveFinishedAreNotAwaited) {
  const DeviceArray<int> count(std::vector<int>{0});
  ASSERT_OK(run(early_exit, 1, 96, 0, count.data()));
  EXPECT_EQ(count.values()[0], 40);
}

__global__ void split_barrier(int* reached) {
  if (threadIdx.x < 32) {
    cuda_emulator::named_barrier_sync(1, 64);
  } else if (threadIdx.x < 64) {
    cuda_emulator::named_barrier_sync(2, 64);
  } else {
    __syncthreads();
  }
  atomicAdd(reached, 1);
}

TEST_F(Execution, ADeadlockSaysWhoWaitsForWhat) {
  const DeviceArray<int> reached(std::vector<int>{0});
  const std::string message = error_of([&] { run(split_barrier, dim3(2, 1, 1), 65, 0, reached.data()); });
  EXPECT_TRUE(contains(message, "deadlock in kernel (anonymous namespace)::split_barrier, block (0, 0, 0)")) << message;
  EXPECT_TRUE(contains(message, "32 threads (first 0, last 31) wait at named_barrier_sync (execution_test.cpp:"))
      << message;
  EXPECT_TRUE(contains(message, "1 threads (first 64, last 64) wait at __syncthreads")) << message;
  EXPECT_TRUE(contains(message, "barrier 1: 32 of 64 threads have come")) << message;
  // The device can be used again, and the failure has left no trace.
  ASSERT_OK(run(early_exit, 1, 96, 0, reached.data()));
  EXPECT_EQ(reached.values()[0], 40);
}

__global__ void produce_and_consume(int* to) {
  __shared__ int slot[32];
  for (int round = 0; round < 3; ++round) {
    if (threadIdx.x < 32) {
      cuda_emulator::named_barrier_sync(2, 64);  // empty
      slot[threadIdx.x] = round * 100 + static_cast<int>(threadIdx.x);
      cuda_emulator::named_barrier_arrive(1, 64);  // full
    } else {
      cuda_emulator::named_barrier_arrive(2, 64);
      cuda_emulator::named_barrier_sync(1, 64);
      to[round * 32 + static_cast<int>(threadIdx.x) - 32] = slot[63 - threadIdx.x];
    }
  }
}

TEST_F(Execution, NamedBarriersHandASlotBackAndForth) {
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    cuda_emulator::set_thread_order(ThreadOrder::shuffled, seed);
    const DeviceArray<int> out(96);
    ASSERT_OK(run(produce_and_consume, 1, 64, 0, out.data()));
    const auto values = out.values();
    for (int i = 0; i < 96; ++i) ASSERT_EQ(values[static_cast<std::size_t>(i)], i / 32 * 100 + 31 - i % 32);
  }
}

__global__ void unequal_counts() {
  cuda_emulator::named_barrier_sync(3, threadIdx.x < 32 ? 64 : 32);
}
__global__ void odd_count() {
  cuda_emulator::named_barrier_sync(3, 33);
}
__global__ void half_a_warp() {
  if (threadIdx.x < 16) cuda_emulator::named_barrier_sync(3, 32);
  __syncthreads();
}
__global__ void no_such_barrier() {
  cuda_emulator::named_barrier_sync(16, 32);
}

TEST_F(Execution, NamedBarriersAreChecked) {
  EXPECT_TRUE(contains(error_of([] { run(unequal_counts, 1, 64, 0); }), "while others wait at it for 64"));
  EXPECT_TRUE(contains(error_of([] { run(odd_count, 1, 64, 0); }), "no multiple of 32"));
  EXPECT_TRUE(contains(error_of([] { run(half_a_warp, 1, 32, 0); }), "16 threads (first 0, last 15) wait at named_b"));
  EXPECT_TRUE(contains(error_of([] { run(no_such_barrier, 1, 32, 0); }), "there are 1 to 15"));
}

// --- Shared memory -------------------------------------------------------------------------------------------------

__global__ void read_shared(std::uint32_t* to, int* aligned) {
  auto* shared = static_cast<std::uint32_t*>(cuda_emulator::dynamic_shared_memory());
  if (threadIdx.x == 0) *aligned = reinterpret_cast<std::uintptr_t>(shared) % 1024 == 0;
  to[blockIdx.x * blockDim.x + threadIdx.x] = shared[threadIdx.x];
  shared[threadIdx.x] = 5;
}

TEST_F(Execution, SharedMemoryIsPoisonedBeforeEachBlock) {
  const DeviceArray<std::uint32_t> seen(64);
  const DeviceArray<int> aligned(1);
  ASSERT_OK(run(read_shared, 2, 32, 128, seen.data(), aligned.data()));
  for (const std::uint32_t value : seen.values()) EXPECT_EQ(value, 0xffffffffu);
  EXPECT_EQ(aligned.values()[0], 1);
}

#if defined(__SANITIZE_ADDRESS__)
__global__ void write_beyond_shared(int at) {
  static_cast<char*>(cuda_emulator::dynamic_shared_memory())[at] = 1;
}

TEST_F(Execution, AddressSanitizerSeesWhatIsBeyondSharedMemory) {
  EXPECT_OK(run(write_beyond_shared, 1, 1, 100, 99));
  EXPECT_DEATH(run(write_beyond_shared, 1, 1, 100, 100), "AddressSanitizer");
}
#endif

__global__ void do_nothing() {}
__global__ void do_nothing_else() {}

TEST_F(Execution, LaunchesBeyondTheLimitsAreRefused) {
  EXPECT_EQ(run(do_nothing, 0, 32, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(run(do_nothing, 1, 0, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(run(do_nothing, 1, 1025, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(run(do_nothing, 1, dim3(32, 33), 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(run(do_nothing, 1, dim3(1, 1, 65), 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(run(do_nothing, dim3(1, 65536), 1, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(run(do_nothing, dim3(1, 1, 65536), 1, 0), cudaErrorInvalidConfiguration);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidConfiguration);
  EXPECT_OK(cudaGetLastError());
  EXPECT_OK(run(do_nothing, dim3(1, 1, 65535), 1, 0));
}

TEST_F(Execution, SharedMemoryBeyond48KiBIsAskedForFirst) {
  EXPECT_OK(run(do_nothing, 1, 1, 48 << 10));
  EXPECT_EQ(run(do_nothing, 1, 1, (48 << 10) + 1), cudaErrorInvalidValue);
  EXPECT_OK(cudaFuncSetAttribute(do_nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, 227 << 10));
  EXPECT_OK(run(do_nothing, 1, 1, 227 << 10));
  EXPECT_EQ(run(do_nothing_else, 1, 1, 227 << 10), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFuncSetAttribute(do_nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, (227 << 10) + 1),
            cudaErrorInvalidValue);
  cuda_emulator::set_devices({.compute_capability = 80});
  EXPECT_EQ(cudaFuncSetAttribute(do_nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, 164 << 10),
            cudaErrorInvalidValue);
}

__global__ void store_value(int value, int* to) {
  *to = value;
}

TEST_F(Execution, ArgumentsAreCopiedAtTheLaunch) {
  const DeviceArray<int> out(1);
  int value = 4;
  ASSERT_OK(launch_on(nullptr, store_value, 1, 1, 0, value, out.data()));
  value = 5;
  EXPECT_EQ(out.values()[0], 4);
}

__global__ void trap_in_thread_seven() {
  if (threadIdx.x == 7) __trap();
  __syncthreads();
}

TEST_F(Execution, AFailureNamesKernelBlockAndThread) {
  const std::string message = error_of([] { run(trap_in_thread_seven, 1, 32, 0); });
  EXPECT_TRUE(contains(message, "trap_in_thread_seven, block (0, 0, 0), thread (7, 0, 0) at execution_test.cpp:"))
      << message;
  EXPECT_TRUE(contains(error_of([] { __syncthreads(); }), "where no kernel runs"));
}

}  // namespace
