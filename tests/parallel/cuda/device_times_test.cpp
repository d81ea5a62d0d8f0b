// A ring's reported waits on a GPU: the GPU's own time, which does not include communication that computing hides, and
// not the host's, which has long finished. The emulator's streams have their own clocks, with fixed speeds.
#include <map>
#include <string>
#include <vector>

#include "framework/allocator.h"
#include "framework/system/compute_device.h"
#include "kernels/elementwise.h"
#include "parallel/launch/launch.h"
#include "parallel/ring/ring.h"
#include "tests/support/gpu.h"
#include "tests/support/shards.h"

#if defined(RINGTRAIN_CUDA_EMULATED)

namespace ringtrain::testing {
namespace {

using std::chrono::milliseconds;

class DeviceTimes : public GpuTest {
 protected:
  void TearDown() override { cuda_emulator::set_durations({}); }
};

constexpr std::int64_t T = 8;

constexpr std::size_t forward = 0, backward = 1;  // of RingLoads

/// Passes of a contiguous ring, in which a visit consists of two kernels. Returns each rank's load.
std::vector<RingLoads> loads_of(int ranks, milliseconds kernel, milliseconds copy, std::int64_t min_part = T,
                                bool causal = true, bool overlap = false) {
  cuda_emulator::set_durations({.kernel = kernel, .device_copy = copy, .instant_host = true});
  std::vector<RingLoads> loads(ranks);
  launch_threads({.ranks = ranks, .timeout_seconds = 60}, [&](Communicator& world) {
    ThreadPool pool(1);
    Allocator allocator(Device::cuda(0));
    ComputeDevice compute(allocator, pool, nullptr);
    Stream& stream = compute.stream();
    const auto group = world.split(0);
    group->set_stream(stream);
    Ring ring(allocator, group.get(), ranks,
              {.tokens = T, .gradient_tokens = T, .G = 1, .D = 2, .documents = false, .min_part = min_part});
    const Shards shards = shards_of(Layout::contiguous, ranks * T, ranks);
    ring.begin({.causal = causal}, shards.extents, shards.segments, 1);
    const Tensor kv = allocator.make(Tag::workspace, "kv", DType::float32, {2, 1, T, 1, 2});
    const Tensor dkv = allocator.make(Tag::workspace, "dkv", DType::float32, {2, 1, T, 1, 2});
    const Tensor other = allocator.make(Tag::workspace, "other", DType::float32, {8});
    const auto visit = [&](const RingBlock&) {
      fill(stream, kv, 1);  // some kernel
      fill(stream, kv, 2);
    };
    const auto waits = [&] {  // while all ranks are idle
      world.barrier({"all here"});
      const std::map<std::string, std::size_t> now = cuda_emulator::host_waits();
      world.barrier({"all here"});
      return now;
    };
    stream.synchronize();
    const auto before = waits();
    ring.forward(stream, 0, kv, {}, visit);
    ring.backward(stream, 0, kv, {}, dkv, visit, [&] {
      if (overlap) fill(stream, other, 3);
    });
    EXPECT_EQ(waits(), before) << "the host waits for the GPU in a pass";
    stream.synchronize();
    loads[world.rank()] = ring.take_loads();
    EXPECT_EQ(ring.take_loads()[forward].wait_seconds(), 0);
    EXPECT_EQ(ring.take_loads()[backward].compute_seconds, 0);
  });
  return loads;
}

TEST_F(DeviceTimes, AWaitIsSeenWhereCommunicationIsSlow) {
  const auto loads = loads_of(2, milliseconds(5), milliseconds(100));
  EXPECT_NEAR(loads[0][forward].compute_seconds, 0.010, 1e-5);  // its own block
  EXPECT_NEAR(loads[1][forward].compute_seconds, 0.020, 1e-5);  // two
  EXPECT_NEAR(loads[1][backward].compute_seconds, 0.020, 1e-5);
  // The copy of 100 ms begins when the hop of two kernels does.
  EXPECT_NEAR(loads[1][forward].hop_waits[1], 0.090, 1e-5);
  EXPECT_EQ(loads[1][forward].hop_waits[0], 0);
  // Gradients leave after hop 0's kernels and are needed before hop 1; the last ones return at the end.
  EXPECT_NEAR(loads[1][backward].hop_waits[1], 0.100, 1e-5);
  EXPECT_NEAR(loads[0][backward].hop_waits[2], 0.110, 1e-5);
}

TEST_F(DeviceTimes, NoneIsSeenWhereComputingHidesIt) {
  const auto loads = loads_of(2, milliseconds(50), milliseconds(1));
  EXPECT_NEAR(loads[1][forward].compute_seconds, 0.200, 1e-5);
  EXPECT_EQ(loads[1][forward].hop_waits[1], 0);
  EXPECT_NEAR(loads[1][backward].hop_waits[1], 0.001, 1e-5);  // gradients of a whole block, which nothing hides
}

TEST_F(DeviceTimes, GradientsInPartsHideBehindEachOther) {
  const auto loads = loads_of(2, milliseconds(50), milliseconds(20), T / 2);
  EXPECT_NEAR(loads[1][backward].compute_seconds, 0.400, 1e-5);  // two blocks of two parts
  EXPECT_EQ(loads[1][forward].hop_waits[1], 0);
  EXPECT_EQ(loads[1][backward].hop_waits[1], 0);
  EXPECT_NEAR(loads[1][backward].hop_waits[2], 0.040, 1e-5);  // the second part's return: dk and dv
  const auto busy = loads_of(2, milliseconds(50), milliseconds(20), T / 2, /*causal=*/true, /*overlap=*/true);
  EXPECT_EQ(busy[1][backward].hop_waits[2], 0);  // something else is computed meanwhile
  // Three ranks, each of which meets every block: each block's gradients go through all of them.
  for (const RingLoads& load : loads_of(3, milliseconds(50), milliseconds(20), T / 2, /*causal=*/false)) {
    EXPECT_EQ(load[backward].hop_waits[1], 0);
    EXPECT_EQ(load[backward].hop_waits[2], 0);
    EXPECT_LE(load[backward].hop_waits[3], 0.080 + 1e-5);  // one stream may move both its part's return and its peer's
  }
}

}  // namespace
}  // namespace ringtrain::testing

#endif
