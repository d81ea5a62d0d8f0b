// Messages between tensors in GPU memory on the timeline: in the rows of the rank that copies them, and of the rank
// that waits.
#include <string>
#include <vector>

#include "framework/allocator.h"
#include "framework/profile/trace.h"
#include "framework/system/compute_device.h"
#include "kernels/elementwise.h"
#include "parallel/collectives.h"
#include "parallel/launch/launch.h"
#include "parallel/traced_communicator.h"
#include "tests/parallel/cuda/gpu_ranks.h"

namespace ringtrain::testing {
namespace {

class TracedExchange : public GpuTest {};

TEST_F(TracedExchange, IsOnTheTimelineFromItsPostUntilItWasWaitedFor) {
  constexpr std::int64_t n = 1000;
  Trace trace(1, 2);
  launch_threads({.ranks = 2, .timeout_seconds = 30}, [&](Communicator& world) {
    RankTrace& rank_trace = trace.rank(world.rank());
    ThreadPool pool(1);
    Allocator allocator(Device::cuda(0));
    ComputeDevice compute(allocator, pool, &rank_trace);
    const Tensor sent = allocator.make(Tag::workspace, "x", DType::float32, {n});
    const Tensor received = allocator.make(Tag::workspace, "x", DType::float32, {n});
    fill(compute.stream(), sent, 1);
    const auto ranks = traced_on_device(world.split(0), rank_trace)->split(0);
    ranks->set_stream(compute.stream());
    const int other = 1 - world.rank();
    const Request request = ranks->exchange(sent, other, received, other, {.operation = "pass", .layer = 3, .hop = 1});
    double value = 1;
    all_reduce_sum(*ranks, {&value, 1}, {"host memory"});  // another communicator shows it
    ranks->wait(request);
    ranks->barrier({"all here"});
  });
  int copies = 0;
  for (int rank = 0; rank < 2; ++rank) {
    const RankTrace& own = trace.rank(rank);
    EXPECT_EQ(own.communication.size(), 0u);
    ASSERT_EQ(own.work.size(), 1u);  // the wait; and likewise in the GPU's row
    ASSERT_EQ(own.device_work.size(), 1u);
    EXPECT_STREQ(own.device_work[0].detail, "pass");
    int passes = 0;
    for (std::size_t i = 0; i < own.device_communication.size(); ++i) {
      const TraceEntry& entry = own.device_communication[i];
      EXPECT_STREQ(entry.name, "pass");
      EXPECT_NE(entry.begin, TraceEntry::still_open);
      EXPECT_LE(entry.begin, entry.end);
      const bool whole_exchange = entry.arguments[2].name == std::string("to");
      (whole_exchange ? passes : copies) += 1;
      if (whole_exchange) {
        EXPECT_LE(entry.begin, own.device_work[0].begin);
        EXPECT_GE(entry.end, own.device_work[0].begin);
      }
      EXPECT_EQ(entry.arguments[0].value, 3);
    }
    EXPECT_EQ(passes, 1);
  }
  EXPECT_EQ(copies, 2);  // one in each direction, each on one of the ranks' streams
}

class TracedCollectives : public GpuRanks {};

TEST_F(TracedCollectives, AreOnTheTimelineTooAndNothingIsChangedByIt) {
  constexpr std::int64_t n = 1001;
  if (!has_gpus_for(2, Carrier::nccl)) GTEST_SKIP() << "too few GPUs";
  Trace trace(1, 2);
  launch_threads({.ranks = 2, .timeout_seconds = 30}, [&](Communicator& world) {
    RankTrace& rank_trace = trace.rank(world.rank());
    ThreadPool pool(1);
    Allocator allocator(Device::cuda(world.rank()));
    ComputeDevice compute(allocator, pool, &rank_trace);
    const Tensor x = allocator.make(Tag::workspace, "x", DType::float32, {n});
    fill(compute.stream(), x, world.rank() + 1);
    const auto ranks = traced_on_device(make_nccl_communicator(world, compute.stream(), 30), rank_trace);
    ASSERT_TRUE(ranks->reduces_gpu_memory());
    ReduceScatter reduction;
    reduction.start(*ranks, x, {}, {.operation = "sum", .layer = 3}, SumOrder::by_communicator);
    reduction.finish(compute.stream());
    all_gather_slices(*ranks, x, {.operation = "gather", .layer = 4});
    std::vector<float> values(n);
    copy(compute.stream(), host_view(values.data(), {n}), x);
    EXPECT_EQ(values, std::vector<float>(n, 3));
    ranks->close();
  });
  for (int rank = 0; rank < 2; ++rank) {
    const TraceTrack& shown = trace.rank(rank).device_communication;
    ASSERT_EQ(shown.size(), 2u);
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_STREQ(shown[i].name, i == 0 ? "sum" : "gather");
      EXPECT_NE(shown[i].begin, TraceEntry::still_open);
      EXPECT_LE(shown[i].begin, shown[i].end);
      EXPECT_EQ(shown[i].arguments[0].value, 3 + static_cast<std::int64_t>(i));
      EXPECT_EQ(shown[i].arguments[1].value, 4 * n);
    }
    EXPECT_EQ(trace.rank(rank).work.size(), 2u);  // the waits
  }
}

}  // namespace
}  // namespace ringtrain::testing
