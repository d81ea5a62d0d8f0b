// Streams, events, memory and devices: what is deferred, what orders what, and what is refused.
#include <condition_variable>
#include <mutex>
#include <thread>

#include "support.h"

namespace {

using cuda_emulator::StreamOrder;
using cuda_emulator::Trace;

constexpr StreamOrder all_orders[] = {StreamOrder::lazy, StreamOrder::eager, StreamOrder::others_first,
                                      StreamOrder::shuffled};

__global__ void store_value(int* to, int value) {
  *to = value;
}
__global__ void copy_value(int* to, const int* from) {
  *to = *from;
}
__global__ void stuck() {
  if (threadIdx.x == 0) cuda_emulator::named_barrier_sync(1, 64);
}

class StreamsTest : public EmulatorTest {
 protected:
  void SetUp() override {
    EmulatorTest::SetUp();
    ASSERT_OK(cudaStreamCreateWithFlags(&a_, cudaStreamNonBlocking));
    ASSERT_OK(cudaStreamCreateWithFlags(&b_, cudaStreamNonBlocking));
    ASSERT_OK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming));
    ASSERT_OK(cudaMalloc(&x_, sizeof(int)));
    ASSERT_OK(cudaMalloc(&y_, sizeof(int)));
    ASSERT_OK(cudaHostAlloc(reinterpret_cast<void**>(&pinned_), sizeof(int), cudaHostAllocPortable));
    clear();
  }
  void clear() {
    ASSERT_OK(cudaDeviceSynchronize());
    ASSERT_OK(cudaMemset(x_, 0, sizeof(int)));
    ASSERT_OK(cudaMemset(y_, 0, sizeof(int)));
    ASSERT_OK(cudaDeviceSynchronize());
    *pinned_ = -1;
  }
  static int read(const int* device) {
    int value = -2;
    EXPECT_OK(cudaMemcpy(&value, device, sizeof(int), cudaMemcpyDeviceToHost));
    return value;
  }
  cudaError_t store(cudaStream_t stream, int* to, int value) {
    return launch_on(stream, store_value, 1, 1, 0, to, value);
  }

  cudaStream_t a_ = nullptr, b_ = nullptr;
  cudaEvent_t event_ = nullptr;
  int *x_ = nullptr, *y_ = nullptr, *pinned_ = nullptr;
};

TEST_F(StreamsTest, NothingRunsUntilItIsNeeded) {
  ASSERT_OK(store(a_, x_, 7));
  EXPECT_EQ(read(x_), 0);
  ASSERT_OK(cudaStreamSynchronize(b_));
  EXPECT_EQ(read(x_), 0);
  ASSERT_OK(cudaStreamSynchronize(a_));
  EXPECT_EQ(read(x_), 7);
}

TEST_F(StreamsTest, AnEventOrdersInEveryOrderAndAMissingOneShows) {
  for (const StreamOrder order : all_orders) {
    cuda_emulator::set_stream_order(order, 4);
    clear();
    ASSERT_OK(store(a_, x_, 7));
    ASSERT_OK(cudaEventRecord(event_, a_));
    ASSERT_OK(store(a_, x_, 8));
    ASSERT_OK(cudaStreamWaitEvent(b_, event_));
    ASSERT_OK(launch_on(b_, copy_value, 1, 1, 0, y_, x_));
    ASSERT_OK(cudaStreamSynchronize(b_));
    if (order == StreamOrder::lazy) {
      EXPECT_EQ(read(y_), 7);  // up to the record and not further
      EXPECT_EQ(read(x_), 7);
    } else {
      EXPECT_GE(read(y_), 7);
    }
  }
  // Without the wait, data is not written yet ...
  cuda_emulator::set_stream_order(StreamOrder::lazy);
  clear();
  ASSERT_OK(store(a_, x_, 7));
  ASSERT_OK(launch_on(b_, copy_value, 1, 1, 0, y_, x_));
  ASSERT_OK(cudaStreamSynchronize(b_));
  EXPECT_NE(read(y_), 7);
  // ... and with this order, data that should come later has already been written.
  cuda_emulator::set_stream_order(StreamOrder::others_first);
  clear();
  ASSERT_OK(launch_on(a_, copy_value, 1, 1, 0, y_, x_));
  ASSERT_OK(store(b_, x_, 9));
  ASSERT_OK(cudaStreamSynchronize(a_));
  EXPECT_EQ(read(y_), 9);
}

TEST_F(StreamsTest, ShuffledStreamsRunInSeveralOrders) {
  bool before = false, after = false;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    cuda_emulator::set_stream_order(StreamOrder::shuffled, seed);
    clear();
    ASSERT_OK(store(a_, x_, 7));
    ASSERT_OK(launch_on(b_, copy_value, 1, 1, 0, y_, x_));
    ASSERT_OK(cudaStreamSynchronize(b_));
    (read(y_) == 7 ? after : before) = true;
  }
  EXPECT_TRUE(before);
  EXPECT_TRUE(after);
}

TEST_F(StreamsTest, AWaitMeansTheLastRecordAtItsCall) {
  ASSERT_OK(cudaStreamWaitEvent(b_, event_));  // never recorded: no effect
  ASSERT_OK(store(a_, x_, 1));
  ASSERT_OK(cudaEventRecord(event_, a_));
  ASSERT_OK(cudaStreamWaitEvent(b_, event_));
  ASSERT_OK(store(a_, x_, 2));
  ASSERT_OK(cudaEventRecord(event_, a_));  // the wait above does not refer to this one
  ASSERT_OK(cudaStreamSynchronize(b_));
  EXPECT_EQ(read(x_), 1);
  ASSERT_OK(cudaEventSynchronize(event_));
  EXPECT_EQ(read(x_), 2);
}

TEST_F(StreamsTest, EventsAreAskedAndTimed) {
  EXPECT_OK(cudaEventQuery(event_));
  EXPECT_OK(cudaEventSynchronize(event_));
  cudaEvent_t begin = nullptr, end = nullptr;
  for (cudaEvent_t* const event : {&begin, &end}) ASSERT_OK(cudaEventCreateWithFlags(event, cudaEventDefault));
  float milliseconds = -1;
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, begin, end), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidResourceHandle);
  ASSERT_OK(cudaEventRecord(begin, a_));
  ASSERT_OK(store(a_, x_, 7));
  ASSERT_OK(cudaEventRecord(end, a_));
  EXPECT_EQ(cudaEventElapsedTime(&milliseconds, begin, end), cudaErrorNotReady);
  EXPECT_EQ(cudaEventQuery(end), cudaErrorNotReady);
  int asked = 0;
  while (cudaEventQuery(end) != cudaSuccess) ASSERT_LT(++asked, 10);
  EXPECT_EQ(read(x_), 7);
  ASSERT_OK(cudaEventElapsedTime(&milliseconds, begin, end));
  EXPECT_GE(milliseconds, 0);
  EXPECT_OK(cudaGetLastError());  // "not ready" is not an error
  ASSERT_OK(cudaEventDestroy(end));
  EXPECT_EQ(cudaEventQuery(end), cudaErrorInvalidResourceHandle);
}

TEST_F(StreamsTest, EventTimesAreThoseOfStreamsSideBySide) {
  using std::chrono::milliseconds;
  cudaEvent_t events[7];
  for (cudaEvent_t& event : events) ASSERT_OK(cudaEventCreateWithFlags(&event, cudaEventDefault));
  const auto elapsed = [&](int from, int to) {
    float time = -1;
    EXPECT_OK(cudaEventElapsedTime(&time, events[from], events[to]));
    return time;
  };
  for (const StreamOrder order : all_orders) {
    for (const auto& [kernel, copy] : {std::pair{20, 50}, {50, 20}}) {
      cuda_emulator::set_stream_order(order, 5);
      cuda_emulator::set_durations({.kernel = milliseconds(kernel), .device_copy = milliseconds(copy)});
      const auto before = std::chrono::steady_clock::now();
      ASSERT_OK(cudaEventRecord(events[0], a_));
      ASSERT_OK(cudaStreamWaitEvent(b_, events[0]));
      ASSERT_OK(cudaEventRecord(events[1], b_));
      ASSERT_OK(cudaMemcpyAsync(y_, x_, sizeof(int), cudaMemcpyDeviceToDevice, b_));
      ASSERT_OK(cudaEventRecord(events[2], b_));
      ASSERT_OK(store(a_, x_, 7));
      ASSERT_OK(cudaEventRecord(events[3], a_));
      ASSERT_OK(cudaStreamWaitEvent(a_, events[2]));
      ASSERT_OK(cudaEventRecord(events[4], a_));
      ASSERT_OK(store(a_, x_, 8));
      ASSERT_OK(cudaEventRecord(events[5], a_));
      const std::chrono::duration<double, std::milli> calls = std::chrono::steady_clock::now() - before;
      ASSERT_OK(cudaStreamSynchronize(a_));
      EXPECT_GE(std::chrono::steady_clock::now() - before, milliseconds(kernel + std::max(kernel, copy)));
      // A stream cannot begin before the host has called, which takes long on a busy machine.
      const double late = calls.count() + 0.01;
      EXPECT_NEAR(elapsed(1, 2), copy, late);
      EXPECT_NEAR(elapsed(0, 3), kernel, late);
      EXPECT_NEAR(elapsed(3, 4), std::max(0, copy - kernel), late);  // the wait; none if nothing is waited for
      EXPECT_NEAR(elapsed(4, 5), kernel, late);
      // An idle stream is as late as the host.
      std::this_thread::sleep_for(milliseconds(30));
      ASSERT_OK(cudaEventRecord(events[6], a_));
      ASSERT_OK(cudaStreamSynchronize(a_));
      EXPECT_GE(elapsed(5, 6), 29);
    }
  }
}

TEST_F(StreamsTest, CopiesFromPinnedMemoryReadItWhenTheyRun) {
  *pinned_ = 1;
  ASSERT_OK(cudaMemcpyAsync(x_, pinned_, sizeof(int), cudaMemcpyHostToDevice, a_));
  *pinned_ = 2;
  ASSERT_OK(cudaStreamSynchronize(a_));
  EXPECT_EQ(read(x_), 2);
}

TEST_F(StreamsTest, CopiesFromPageableMemoryReadItAtTheCall) {
  int pageable = 1;
  ASSERT_OK(cudaMemcpyAsync(x_, &pageable, sizeof(int), cudaMemcpyHostToDevice, a_));
  pageable = 2;
  EXPECT_EQ(read(x_), 0);
  ASSERT_OK(cudaStreamSynchronize(a_));
  EXPECT_EQ(read(x_), 1);
}

TEST_F(StreamsTest, CopiesToPinnedMemoryAreDeferredAndToPageableAreNot) {
  ASSERT_OK(store(a_, x_, 7));
  ASSERT_OK(cudaMemcpyAsync(pinned_, x_, sizeof(int), cudaMemcpyDeviceToHost, a_));
  EXPECT_EQ(*pinned_, -1);
  int pageable = -1;
  ASSERT_OK(cudaMemcpyAsync(&pageable, x_, sizeof(int), cudaMemcpyDeviceToHost, a_));
  EXPECT_EQ(pageable, 7);
  EXPECT_EQ(*pinned_, 7);
}

TEST_F(StreamsTest, CopiesBeyondAnAllocationOrTheWrongWayAreRefused) {
  int host[2] = {};
  EXPECT_EQ(cudaMemcpy(x_, host, 2 * sizeof(int), cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(host, x_ + 1, sizeof(int), cudaMemcpyDeviceToHost), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(host, x_, sizeof(int), cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy(x_, y_, sizeof(int), cudaMemcpyHostToDevice), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(x_, 0, 5), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemset(host, 0, 4), cudaErrorInvalidValue);
  EXPECT_OK(cudaMemcpy(x_, host, sizeof(int), cudaMemcpyDefault));
  EXPECT_OK(cudaMemcpy(x_, host, 0, cudaMemcpyHostToDevice));
}

TEST_F(StreamsTest, WorkOfADestroyedStreamStillRuns) {
  ASSERT_OK(store(a_, x_, 7));
  ASSERT_OK(cudaStreamDestroy(a_));
  EXPECT_EQ(store(a_, x_, 8), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaStreamDestroy(a_), cudaErrorInvalidResourceHandle);
  ASSERT_OK(cudaDeviceSynchronize());
  EXPECT_EQ(read(x_), 7);
}

TEST_F(StreamsTest, FreeingWaitsForTheDevice) {
  ASSERT_OK(store(a_, x_, 7));
  ASSERT_OK(launch_on(a_, copy_value, 1, 1, 0, y_, x_));
  ASSERT_OK(cudaFree(x_));
  EXPECT_EQ(read(y_), 7);
  EXPECT_EQ(cudaFree(x_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeHost(y_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(pinned_), cudaErrorInvalidValue);
  EXPECT_OK(cudaFree(nullptr));
}

TEST_F(StreamsTest, HostFunctionsRunInTheirPlaceWithoutTheLock) {
  struct Meeting {
    std::mutex mutex;
    std::condition_variable changed;
    bool other_is_done = false;
    int seen = -1;
    int* pinned;
  } meeting;
  meeting.pinned = pinned_;
  ASSERT_OK(store(a_, x_, 7));
  ASSERT_OK(cudaMemcpyAsync(pinned_, x_, sizeof(int), cudaMemcpyDeviceToHost, a_));
  const auto function = [](void* argument) {
    auto& state = *static_cast<Meeting*>(argument);
    state.seen = *state.pinned;
    std::unique_lock lock(state.mutex);
    state.changed.wait(lock, [&] { return state.other_is_done; });
  };
  ASSERT_OK(cudaLaunchHostFunc(a_, function, &meeting));
  ASSERT_OK(store(a_, x_, 8));
  // The function waits until another thread has used the device, and a third waits for the function's stream.
  std::thread other([&] {
    EXPECT_OK(store(b_, y_, 5));
    EXPECT_OK(cudaStreamSynchronize(b_));
    const std::lock_guard lock(meeting.mutex);
    meeting.other_is_done = true;
    meeting.changed.notify_all();
  });
  std::thread third([&] { EXPECT_OK(cudaStreamSynchronize(a_)); });
  ASSERT_OK(cudaStreamSynchronize(a_));
  other.join();
  third.join();
  EXPECT_EQ(meeting.seen, 7);
  EXPECT_EQ(read(x_), 8);
  EXPECT_EQ(read(y_), 5);
}

TEST_F(StreamsTest, AFailureDropsTheWorkOfTheDevice) {
  ASSERT_OK(launch_on(a_, stuck, 1, 32, 0));
  ASSERT_OK(store(a_, x_, 7));
  ASSERT_OK(store(b_, y_, 7));
  EXPECT_THROW(cudaStreamSynchronize(a_), cuda_emulator::Error);
  EXPECT_OK(cudaDeviceSynchronize());
  EXPECT_EQ(read(x_), 0);
  EXPECT_EQ(read(y_), 0);
}

TEST_F(StreamsTest, ATraceShowsWhatRanInItsOrder) {
  cuda_emulator::start_trace();
  ASSERT_OK(store(b_, x_, 7));
  ASSERT_OK(cudaEventRecord(event_, b_));
  ASSERT_OK(cudaMemsetAsync(y_, 0, 4, a_));
  ASSERT_OK(cudaStreamWaitEvent(a_, event_));
  ASSERT_OK(cudaMemcpyAsync(y_, x_, 4, cudaMemcpyDeviceToDevice, a_));
  ASSERT_OK(cudaStreamSynchronize(a_));
  const auto trace = cuda_emulator::take_trace();
  ASSERT_EQ(trace.size(), 5u);
  EXPECT_EQ(trace[0].kind, Trace::Kind::set);
  EXPECT_EQ(trace[0].stream, 1);
  EXPECT_EQ(trace[1].kind, Trace::Kind::kernel);
  EXPECT_EQ(trace[1].name, "(anonymous namespace)::store_value");
  EXPECT_EQ(trace[1].stream, 2);
  EXPECT_EQ(trace[2].kind, Trace::Kind::record);
  EXPECT_EQ(trace[3].kind, Trace::Kind::wait);
  EXPECT_EQ(trace[4].name, "device to device");
  EXPECT_EQ(trace[4].bytes, 4u);
  ASSERT_OK(cudaMemset(y_, 0, 4));
  ASSERT_OK(cudaDeviceSynchronize());
  EXPECT_TRUE(cuda_emulator::take_trace().empty());
}

// --- Memory and devices --------------------------------------------------------------------------------------------

class DevicesTest : public EmulatorTest {};

TEST_F(DevicesTest, MemoryIsPoisonedAndLimited) {
  cuda_emulator::set_devices({.count = 2, .memory_bytes = 1000});
  std::uint32_t* first = nullptr;
  char* second = nullptr;
  ASSERT_OK(cudaMalloc(&first, 600));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(first) % 256, 0u);
  std::uint32_t word = 0;
  ASSERT_OK(cudaMemcpy(&word, first + 149, 4, cudaMemcpyDeviceToHost));
  EXPECT_EQ(word, 0xffffffffu);
  EXPECT_EQ(cudaMalloc(&second, 401), cudaErrorMemoryAllocation);
  EXPECT_EQ(second, nullptr);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  std::size_t free_bytes = 0, total = 0;
  ASSERT_OK(cudaMemGetInfo(&free_bytes, &total));
  EXPECT_EQ(free_bytes, 400u);
  EXPECT_EQ(total, 1000u);
  ASSERT_OK(cudaSetDevice(1));
  ASSERT_OK(cudaMalloc(&second, 1000));
  ASSERT_OK(cudaFree(first));
}

TEST_F(DevicesTest, PropertiesAreThoseSet) {
  cuda_emulator::set_devices({.count = 2, .compute_capability = 80, .multiprocessors = 5});
  int count = 0, device = -1, value = 0;
  ASSERT_OK(cudaGetDeviceCount(&count));
  EXPECT_EQ(count, 2);
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
  ASSERT_OK(cudaSetDevice(1));
  ASSERT_OK(cudaGetDevice(&device));
  EXPECT_EQ(device, 1);
  cudaDeviceProp properties{};
  ASSERT_OK(cudaGetDeviceProperties(&properties, 1));
  EXPECT_EQ(properties.major, 8);
  EXPECT_EQ(properties.minor, 0);
  EXPECT_EQ(properties.multiProcessorCount, 5);
  ASSERT_OK(cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerBlockOptin, 1));
  EXPECT_EQ(value, 163 << 10);
  EXPECT_EQ(cudaDeviceGetAttribute(&value, cudaDevAttrMaxSharedMemoryPerBlockOptin, 2), cudaErrorInvalidDevice);
  cuda_emulator::set_devices({.count = 0});
  EXPECT_EQ(cudaGetDeviceCount(&count), cudaErrorNoDevice);
  EXPECT_EQ(count, 0);
}

TEST_F(DevicesTest, ContextsAreOnTheDevicesThatThreadsChose) {
  cuda_emulator::set_devices({.count = 3});
  int count = 0;
  cudaDeviceProp properties{};
  ASSERT_OK(cudaGetDeviceCount(&count));
  ASSERT_OK(cudaGetDeviceProperties(&properties, 2));
  EXPECT_EQ(cuda_emulator::contexts(), std::set<int>{});
  EXPECT_OK(cudaDeviceSynchronize());
  EXPECT_EQ(cuda_emulator::contexts(), std::set<int>{0}) << "the default";
  std::thread([] { EXPECT_OK(cudaSetDevice(2)); }).join();
  EXPECT_EQ(cuda_emulator::contexts(), (std::set<int>{0, 2}));
}

TEST_F(DevicesTest, AThreadThatChoseNoDeviceMakesNoMoreContexts) {
  cuda_emulator::set_devices({.count = 2});
  ASSERT_OK(cudaSetDevice(1));
  cudaEvent_t event = nullptr;
  ASSERT_OK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  std::thread([&] {
    EXPECT_THROW(cudaEventSynchronize(event), cuda_emulator::Error);
    EXPECT_OK(cudaSetDevice(1));
    EXPECT_OK(cudaEventSynchronize(event));
  }).join();
  EXPECT_EQ(cuda_emulator::contexts(), std::set<int>{1});
}

TEST_F(DevicesTest, LoadingWaitsForAllDevicesWhenTestsSaySo) {
  cuda_emulator::set_devices({.count = 2});
  ASSERT_OK(cudaSetDevice(1));
  const DeviceArray<int> there(std::vector<int>{0});
  ASSERT_OK(cudaSetDevice(0));
  const DeviceArray<int> here(std::vector<int>{0}), copy(std::vector<int>{0});
  bool expected = false;
  const auto give_work = [&](int device) {
    ASSERT_OK(cudaSetDevice(device));
    ASSERT_OK(launch_on(nullptr, store_value, 1, 1, 0, device == 1 ? there.data() : here.data(), 5));
  };
  const auto waits = [&](const auto& call) {
    give_work(1);
    ASSERT_OK(cudaSetDevice(0));
    const std::size_t done = cuda_emulator::work_done();
    call();
    const bool waited = cuda_emulator::work_done() > done;
    ASSERT_OK(cudaSetDevice(1));
    ASSERT_OK(cudaDeviceSynchronize());
    ASSERT_OK(cudaSetDevice(0));
    ASSERT_OK(cudaDeviceSynchronize());
    EXPECT_EQ(waited, expected);
  };
  const auto launch_here = [&] { give_work(0); };
  const auto launch_another = [&] {
    ASSERT_OK(cudaSetDevice(0));
    ASSERT_OK(launch_on(nullptr, copy_value, 1, 1, 0, copy.data(), here.data()));
  };
  waits(launch_here);
  cuda_emulator::set_loading_waits(true);
  waits(launch_here);  // it is already loaded
  expected = true;
  waits(launch_another);
  waits([] {
    const DeviceArray<int> more(1);
    EXPECT_NE(more.data(), nullptr);
  });
  expected = false;
  waits(launch_another);
}

TEST_F(DevicesTest, CallsFailWhenTestsSaySo) {
  char* memory = nullptr;
  cuda_emulator::fail_call("cudaMalloc", 2, cudaErrorMemoryAllocation);
  cuda_emulator::fail_call("cudaStreamSynchronize", 1, cudaErrorLaunchFailure);
  EXPECT_OK(cudaMalloc(&memory, 8));
  EXPECT_EQ(cudaStreamSynchronize(nullptr), cudaErrorLaunchFailure);
  EXPECT_OK(cudaStreamSynchronize(nullptr));
  EXPECT_EQ(cudaMalloc(&memory, 8), cudaErrorMemoryAllocation);
  EXPECT_OK(cudaMalloc(&memory, 8));
  cuda_emulator::fail_device(0, cudaErrorECCUncorrectable);
  EXPECT_EQ(cudaMalloc(&memory, 8), cudaErrorECCUncorrectable);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorECCUncorrectable);
  EXPECT_STREQ(cudaGetErrorName(cudaErrorECCUncorrectable), "cudaErrorECCUncorrectable");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
}

TEST_F(DevicesTest, TheEnvironmentSetsDevicesAndOrders) {
  setenv("CUDA_EMULATOR_DEVICES", "3", 1);
  setenv("CUDA_EMULATOR_STREAMS", "eager", 1);
  cuda_emulator::reset();
  int count = 0;
  EXPECT_OK(cudaGetDeviceCount(&count));
  EXPECT_EQ(count, 3);
  cudaStream_t stream = nullptr;
  ASSERT_OK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  const DeviceArray<int> x(std::vector<int>{0});
  ASSERT_OK(launch_on(stream, store_value, 1, 1, 0, x.data(), 7));
  EXPECT_EQ(x.values()[0], 7);
  setenv("CUDA_EMULATOR_STREAMS", "sideways", 1);
  EXPECT_THROW(cuda_emulator::reset(), cuda_emulator::Error);
  unsetenv("CUDA_EMULATOR_DEVICES");
  unsetenv("CUDA_EMULATOR_STREAMS");
}

#if defined(__SANITIZE_ADDRESS__)
TEST_F(DevicesTest, AddressSanitizerSeesHostCodeThatReadsDeviceMemory) {
  const DeviceArray<int> x(std::vector<int>{3});
  EXPECT_DEATH(static_cast<void>(*static_cast<volatile int*>(x.data())), "use-after-poison");
}

__global__ void write_at(int* to, int at) {
  to[at] = 1;
}

TEST_F(DevicesTest, AddressSanitizerSeesAKernelThatWritesBeyondAnAllocation) {
  const DeviceArray<int> x(std::vector<int>(10));
  EXPECT_OK(run(write_at, 1, 1, 0, x.data(), 9));
  EXPECT_DEATH(run(write_at, 1, 1, 0, x.data(), 10), "heap-buffer-overflow");
}
#endif

}  // namespace
