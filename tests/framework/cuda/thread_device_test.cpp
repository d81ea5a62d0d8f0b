// Threads use the GPU of the thread that starts them, so none creates a context on a GPU that is not its rank's.
#if defined(RINGTRAIN_CUDA_EMULATED)

#include <gtest/gtest.h>

#include <set>

#include "cuda_emulator.h"
#include "framework/cuda/current_device.h"
#include "framework/system/run_aside.h"

namespace ringtrain {
namespace {

class ThreadDevice : public ::testing::Test {
 protected:
  void SetUp() override { cuda_emulator::set_devices({.count = 3}); }
  void TearDown() override { cuda_emulator::reset(); }

  /// Calls body on a thread that was started without a GPU.
  template <class Body>
  static void on_new_thread(Body body) {
    std::thread(body).join();
  }
};

int current_device() {
  int device = -1;
  cuda::check(cudaGetDevice(&device), "asking for the thread's GPU");
  return device;
}

TEST_F(ThreadDevice, IsTheStartersForThreadsAndForWorkAside) {
  on_new_thread([] {
    cuda::use_device(2);
    int of_thread = -1, of_its_own = -1;
    start_thread(ExitCode::rank, "a thread", [&] {
      of_thread = current_device();
      of_its_own = run_aside(current_device).get();
      cuda::check(cudaDeviceSynchronize(), "waiting");
    }).join();
    EXPECT_EQ(of_thread, 2);
    EXPECT_EQ(of_its_own, 2);
    EXPECT_EQ(run_aside(current_device).get(), 2);
  });
  EXPECT_EQ(cuda_emulator::contexts(), std::set<int>{2});
}

TEST_F(ThreadDevice, IsNoneWithoutTheStarters) {
  on_new_thread([] { EXPECT_EQ(run_aside(cuda::chosen_device).get(), -1); });
  EXPECT_EQ(cuda_emulator::contexts(), std::set<int>{});
}

TEST_F(ThreadDevice, StaysTheLastOneThatCouldBeChosen) {
  on_new_thread([] {
    cuda::use_device(1);
    EXPECT_THROW(cuda::use_device(7), Error);
    EXPECT_EQ(cuda::chosen_device(), 1);
  });
}

}  // namespace
}  // namespace ringtrain

#endif
