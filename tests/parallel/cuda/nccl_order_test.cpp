// The order of NCCL's operations in a rank's work on its GPU: before the work that should overlap with them, and all of
// them before a split. Checked with the emulator, which reports what each stream waits for.
#if defined(RINGTRAIN_CUDA_EMULATED)

#include "tests/parallel/cuda/gpu_ranks.h"

namespace ringtrain::testing {
namespace {

constexpr double long_timeout = 120;

class NcclOrder : public GpuRanks {};

/// Returns how often the rank's stream waits for another one between its first kernel and its second.
int waits_between_kernels(const std::vector<cuda_emulator::Trace>& trace, int device) {
  using Kind = cuda_emulator::Trace::Kind;
  int stream = -1, waits = 0;
  for (const auto& one : trace) {
    if (one.device != device) continue;
    if (one.kind == Kind::kernel && stream >= 0) return waits;
    if (one.kind == Kind::kernel) stream = one.stream;
    if (one.kind == Kind::wait && one.stream == stream) ++waits;
  }
  ADD_FAILURE() << "fewer than two kernels on device " << device;
  return -1;
}

TEST_F(NcclOrder, WorkBehindAMessageLetsItBeginFirst) {
  // Otherwise a kernel that fills the GPU would delay it until its own end. But it does not wait for the ends of other
  // operations.
  for (const bool with_another : {false, true}) {
    launch_threads({.ranks = 2, .timeout_seconds = long_timeout}, [&](Communicator& world) {
      GpuRank rank(world, Carrier::nccl, long_timeout);
      const auto gradients = rank.ranks->split(0);
      const Tensor x = rank.make(100, 1), sent = rank.make(100, world.rank()), received = rank.make(100, -1);
      const Tensor own = rank.make(10, 0);
      connect(rank);
      Request sum{};
      if (with_another) sum = gradients->reduce_scatter(x.view().flat(), {"sum"});
      rank.stream.synchronize();
      world.barrier({});
      if (world.rank() == 0) cuda_emulator::start_trace();
      world.barrier({});
      fill(rank.stream, sent, 2);
      const Request request = post_around(rank, sent, received);
      fill(rank.stream, own, 3);
      rank.ranks->wait(request);
      gradients->wait(sum);
      EXPECT_EQ(rank.read(received), std::vector<float>(100, 2));
      world.barrier({});
      if (world.rank() == 0) {
        const auto trace = cuda_emulator::take_trace();
        for (int r = 0; r < 2; ++r) EXPECT_EQ(waits_between_kernels(trace, r), with_another ? 0 : 1);
      }
    });
  }
  EXPECT_EQ(cuda_emulator::calls()["cudaStreamCreateWithPriority"], 4u);
}

TEST_F(NcclOrder, WorkBehindAMessageDoesNotWaitForItsEnd) {
  launch_threads({.ranks = 2, .timeout_seconds = 20}, [&](Communicator& world) {
    GpuRank rank(world, Carrier::nccl, 20);
    const Tensor sent = rank.make(100, world.rank()), received = rank.make(100, -1), x = rank.make(10, 0);
    connect(rank);
    if (world.rank() == 1) world.barrier({"the other one has done its work"});
    const Request request = post_around(rank, sent, received);
    fill(rank.stream, x, 3);
    if (world.rank() == 0) {
      rank.stream.synchronize();
      world.barrier({"before the other one posts its side"});
    }
    rank.ranks->wait(request);
    EXPECT_EQ(rank.read(received), std::vector<float>(100, static_cast<float>(1 - world.rank())));
  });
}

TEST_F(NcclOrder, ASplitWaitsForWhatIsUnderWay) {
  launch_threads({.ranks = 4, .timeout_seconds = long_timeout}, [](Communicator& world) {
    GpuRank rank(world, Carrier::nccl, long_timeout);
    const Tensor sent = rank.make(100, world.rank()), received = rank.make(100, -1);
    rank.ranks->wait(post_around(rank, sent, received));
    const auto half = rank.ranks->split(world.rank() % 2 == 0 ? -7 : 3);  // any color will do
    EXPECT_EQ(half->size(), 2);
    EXPECT_EQ(half->rank(), world.rank() / 2);
    half->wait(half->exchange(sent, 1 - half->rank(), received, 1 - half->rank(), test_site));
    EXPECT_EQ(rank.read(received), std::vector<float>(100, static_cast<float>((world.rank() + 2) % 4)));
  });
}

}  // namespace
}  // namespace ringtrain::testing

#endif
