// Messages between tensors in GPU memory: they wait for the work that makes what they send, and the work that uses what
// they bring waits for them, whatever order the device finds; the host waits for neither.
#include <vector>

#include "framework/allocator.h"
#include "framework/compute_device.h"
#include "kernels/elementwise.h"
#include "parallel/collectives.h"
#include "parallel/launch.h"
#include "tests/support/gpu.h"

namespace ringtrain::testing {
namespace {

class DeviceExchange : public GpuTest {};

/// A rank with a GPU that it shares with the others.
struct GpuRank {
  explicit GpuRank(Communicator& world)
      : pool(1), allocator(Device::cuda(0)), compute(allocator, pool, nullptr), ranks(world.split(0)) {
    ranks->order_with(compute.stream());
  }
  Tensor make(std::int64_t n, double value) {
    Tensor x = allocator.make(Tag::workspace, "x", DType::float32, {n});
    fill(compute.stream(), x, value);
    return x;
  }
  std::vector<float> read(const TensorView& x) {
    std::vector<float> values(static_cast<std::size_t>(x.numel()));
    copy(compute.stream(), host_view(values.data(), x.shape), x);
    return values;
  }
  ThreadPool pool;
  Allocator allocator;
  ComputeDevice compute;
  std::unique_ptr<Communicator> ranks;
};

TEST_F(DeviceExchange, FollowsTheWorkOfBothRanks) {
  constexpr int ranks = 3, rounds = 5;
  constexpr std::int64_t n = 1000;
  std::vector<std::vector<float>> found(ranks);
  launch_threads({.ranks = ranks, .timeout_seconds = 30}, [&](Communicator& world) {
    GpuRank rank(world);
    Stream& stream = rank.compute.stream();
    const int right = (world.rank() + 1) % ranks, left = (world.rank() + ranks - 1) % ranks;
    const Tensor sum = rank.make(n, 0), sent = rank.make(n, world.rank() + 1), received = rank.make(n, -1e30);
    for (int round = 0; round < rounds; ++round) {
      const Ticket ticket = rank.ranks->exchange(sent, right, received, left, {"test"});
      scale(stream, sum, 2);  // beside the message
      rank.ranks->wait(ticket);
      add(stream, sum, received);
      copy(stream, sent, received);  // the next round sends it on
      fill(stream, received, -1e30);
    }
    found[static_cast<std::size_t>(world.rank())] = rank.read(sum);
  });
  for (int rank = 0; rank < ranks; ++rank) {
    double expected = 0;
    for (int round = 0; round < rounds; ++round) expected = 2 * expected + (rank - 1 - round + 2 * ranks) % ranks + 1;
    EXPECT_EQ(found[static_cast<std::size_t>(rank)], std::vector<float>(n, static_cast<float>(expected)));
  }
}

TEST_F(DeviceExchange, SumsAndGathersSlices) {
  constexpr int ranks = 4;
  constexpr std::int64_t n = 1003;
  std::vector<std::vector<float>> found(ranks);
  launch_threads({.ranks = ranks, .timeout_seconds = 30}, [&](Communicator& world) {
    GpuRank rank(world);
    const Tensor x = rank.make(n, world.rank() + 1);
    const Tensor staging = rank.make(reduce_scatter_staging(n, ranks), -1e30);
    ReduceScatter reduction;
    reduction.start(*rank.ranks, x, staging, {"sum"});
    reduction.finish(rank.compute.stream());
    all_gather_slices(*rank.ranks, x, {"gather"});
    found[static_cast<std::size_t>(world.rank())] = rank.read(x);
  });
  for (const auto& values : found) EXPECT_EQ(values, std::vector<float>(n, 10));
}

TEST_F(DeviceExchange, HostMemoryStillGoesAtOnce) {
  std::vector<double> sums(2);
  launch_threads({.ranks = 2, .timeout_seconds = 30}, [&](Communicator& world) {
    GpuRank rank(world);
    double value = world.rank() + 1;
    all_reduce_sum(*rank.ranks, {&value, 1}, {"host"});
    sums[static_cast<std::size_t>(world.rank())] = value;
  });
  EXPECT_EQ(sums, (std::vector<double>{3, 3}));
}

}  // namespace
}  // namespace ringtrain::testing
