// Wrong uses of ranks by another program: of messages, collectives, the ring, launches, and shards. Each ends in a
// message that begins with the caller's line, and names the argument, what it is, and what it must be. (For attention:
// attention_over_ring_test.cpp; for the store, whose messages name the call: parameter_store_test.cpp.)
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "parallel/attention/attention_over_ring.h"
#include "parallel/collectives.h"
#include "parallel/launch/launcher.h"
#include "parallel/ring/ring.h"
#include "tests/support/error_of.h"
#include "tests/support/shards.h"

namespace ringtrain::testing {
namespace {

constexpr CallSite site{.operation = "test"};

TensorView on_gpu(TensorView x) {
  x.device = Device::cuda(1);
  return x;
}

/// Runs body as the only rank, or as one of several.
void with_ranks(int ranks, const RankBody& body) {
  launch_threads({.ranks = ranks, .timeout_seconds = 60}, body);
}

TEST(WrongUsesOfRanks, AMessageHasAPeerAndMemory) {
  std::vector<double> buffer(2);
  const TensorView x = host_view(buffer.data(), {2}), nothing{nullptr, {2}, DType::float64, Device::cpu()};
  with_ranks(1, [&](Communicator& world) {
    expect_refused("send has the peer 1, but ranks are 0 to 0", [&] { world.exchange(x, 1, {}, no_peer, site); });
    expect_refused("receive has the peer -2, but ranks are 0 to 0", [&] { world.exchange({}, no_peer, x, -2, site); });
    expect_refused("send is null, but must have memory for 2 elements",
                   [&] { world.exchange(nothing, 0, x, 0, site); });
    expect_refused("receive is null, but must have memory for 2 elements",
                   [&] { world.exchange(x, 0, nothing, 0, site); });
    expect_refused(
        "receive is on cuda:1, but this communicator sends only host memory; to send GPU memory, use NCCL, or "
        "thread ranks after set_stream",
        [&] { world.exchange(x, 0, on_gpu(x), 0, site); });
  });
}

TEST(WrongUsesOfRanks, ARequestIsWaitedForOnce) {
  const std::string sentence =
      "the request is not in progress here: wait once for each request, with the communicator that returned it";
  with_ranks(1, [&](Communicator& world) {
    std::vector<double> a(2), b(2);
    const Request request = world.exchange(host_view(a.data(), {2}), 0, host_view(b.data(), {2}), 0, site);
    world.wait(request);
    expect_refused(sentence, [&] { world.wait(request); });
    expect_refused(sentence, [&] { world.wait({99}); });
    const auto other = world.split(0);
    const Request next = world.exchange(host_view(a.data(), {2}), 0, host_view(b.data(), {2}), 0, site);
    expect_refused(sentence, [&] { other->wait(next); });
    world.wait(next);
  });
}

TEST(WrongUsesOfRanks, ABroadcastHasARoot) {
  std::vector<float> buffer(3);
  const TensorView x = host_view(buffer.data(), {3}), nothing{nullptr, {3}, DType::float32, Device::cpu()};
  with_ranks(1, [&](Communicator& world) {
    expect_refused("broadcast from root 2, but ranks are 0 to 0", [&] { broadcast(world, x, 2, site); });
    expect_refused("broadcast from root -1, but ranks are 0 to 0", [&] { broadcast(world, x, -1, site); });
    expect_refused("x is null, but must have memory for 3 elements", [&] { broadcast(world, nothing, 0, site); });
  });
}

TEST(WrongUsesOfRanks, ASliceBelongsToARank) {
  expect_refused(
      "rank 3 of 3 has no slice of 7 elements: the rank must be 0 to ranks - 1, the number of elements 0 or more",
      [&] { slice_of(7, 3, 3); });
  expect_refused(
      "rank 0 of 2 has no slice of -7 elements: the rank must be 0 to ranks - 1, the number of elements 0 or more",
      [&] { reduce_scatter_staging(-7, 2); });
  expect_refused(
      "rank 4 of 4 has no shard of a sequence of 96 tokens: the rank must be 0 to ranks - 1, the tokens 0 or more",
      [&] { shard_positions(Layout::zigzag, 96, 4, 4); });
  expect_refused(
      "rank 0 of 0 has no shard of a sequence of 96 tokens: the rank must be 0 to ranks - 1, the tokens 0 or more",
      [&] { shard_segments(Layout::striped, 96, 0, 0); });
}

TEST(WrongUsesOfRanks, TheTensorsOfAReduceScatterAreNamed) {
  with_ranks(2, [&](Communicator& world) {
    std::vector<float> values(5), small(2), whole(3);
    std::vector<double> wide(3);
    std::vector<std::int32_t> integers(5);
    const TensorView x = host_view(values.data(), {5}), nothing{nullptr, {5}, DType::float32, Device::cpu()};
    ReduceScatter reduction;
    expect_refused("x is null, but must have memory for 5 elements",
                   [&] { reduction.start(world, nothing, host_view(whole.data(), {3}), site); });
    expect_refused("x has dtype int32, not float32, float64 or bfloat16", [&] {
      reduction.start(world, host_view(integers.data(), {5}), host_view(whole.data(), {3}), site);
    });
    expect_refused("staging has dtype float64, but must have dtype float32",
                   [&] { reduction.start(world, x, host_view(wide.data(), {3}), site); });
    expect_refused("staging is on cuda:1, but must be on cpu",
                   [&] { reduction.start(world, x, on_gpu(host_view(whole.data(), {3})), site); });
    expect_refused("staging is null, but must have memory for 3 elements", [&] {
      reduction.start(world, x, {nullptr, {3}, DType::float32, Device::cpu()}, site);
    });
    expect_refused("staging has 2 elements, but must have reduce_scatter_staging(5, 2) = 3 or more",
                   [&] { reduction.start(world, x, host_view(small.data(), {2}), site); });
    expect_refused(
        "SumOrder::by_communicator cannot sum x on cpu: it needs GPU memory, and reduces_gpu_memory() must return true",
        [&] { reduction.start(world, x, {}, site, SumOrder::by_communicator); });
    EXPECT_FALSE(reduction.pending());
  });
}

TEST(WrongUsesOfRanks, ACollectiveIsStartedAndThenFinished) {
  with_ranks(1, [&](Communicator& world) {
    ThreadPool pool(1);
    Stream stream(pool);
    std::vector<float> values(5);
    const TensorView x = host_view(values.data(), {5}), nothing{nullptr, {5}, DType::float32, Device::cpu()};
    ReduceScatter reduction;
    expect_refused("a ReduceScatter must be started before it is finished", [&] { reduction.finish(stream); });
    reduction.start(world, x, {}, site);
    expect_refused("a ReduceScatter must be finished before it is started again",
                   [&] { reduction.start(world, x, {}, site); });
    reduction.finish(stream);
    AllGather gather;
    expect_refused("an AllGather must be started before it is finished", [&] { gather.finish(); });
    gather.start(world, x, site);
    expect_refused("an AllGather must be finished before it is started again", [&] { gather.start(world, x, site); });
    gather.finish();
    expect_refused("x is null, but must have memory for 5 elements", [&] { all_gather_slices(world, nothing, site); });
  });
}

TEST(WrongUsesOfRanks, GpuMemoryNeedsWhoCarriesIt) {
  with_ranks(2, [&](Communicator& world) {
    std::vector<float> values(5);
    const TensorView x = on_gpu(host_view(values.data(), {5}));
    const std::string end =
        " is on cuda:1, but this communicator sends only host memory; to send GPU memory, use NCCL, or thread "
        "ranks after set_stream";
    expect_refused("send" + end, [&] { all_gather_slices(world, x, site); });
    if (world.rank() == 0) {
      expect_refused("send" + end, [&] { broadcast(world, x, 0, site); });
    } else {
      expect_refused("receive" + end, [&] { broadcast(world, x, 0, site); });
    }
  });
}

TEST(WrongUsesOfRanks, ALaunchHasRanksAndATimeout) {
  Launcher launcher;
  const RankBody body = [](Communicator&) { ADD_FAILURE() << "a rank ran"; };
  EXPECT_EQ(error_of(ExitCode::usage, [&] { launcher.launch({.ranks = 0}, body); }),
            "LaunchOptions has 0 ranks, but must have 1 or more");
  EXPECT_EQ(error_of(ExitCode::usage, [&] { launch_threads({.ranks = -3}, body); }),
            "LaunchOptions has -3 ranks, but must have 1 or more");
  EXPECT_EQ(error_of(ExitCode::usage, [&] { launcher.launch({.ranks = 1, .timeout_seconds = 0}, body); }),
            "LaunchOptions has a timeout of 0 s, but must have more than 0");
  expect_refused("a ThreadPool cannot have 0 workers; it needs 1 or more", [] { ThreadPool(0); });
}

/// A ring of one rank with 4 tokens of one sequence, with only valid arguments.
struct RingOfOne {
  explicit RingOfOne(Communicator& world) : ring(allocator, &world, 1, capacity) {}
  void begin() { ring.begin(AttentionMask{}, extents, segments, 1); }
  TensorView pair() { return host_view(kv.data(), {2, 1, 4, 1, 8}); }

  static constexpr RingCapacity capacity{.tokens = 4, .gradient_tokens = 4, .G = 1, .D = 8};
  ThreadPool pool{1};
  Stream stream{pool};
  Allocator allocator{Device::cpu()};
  std::vector<SegmentList> segments{{{0, 1, 4}}};
  std::vector<ShardExtents> extents{{{{0, 3, 0, 0}}}};
  std::vector<float> kv = std::vector<float>(64);
  const RingVisitor visitor = [](const RingBlock&) {};
  Ring ring;
};

TEST(WrongUsesOfRanks, TheTensorsOfARingAreNamedByDimension) {
  with_ranks(1, [&](Communicator& world) {
    RingOfOne r(world);
    r.begin();
    std::vector<double> wide(64);
    std::vector<std::int32_t> ids(4);
    expect_refused("kv has the shape [2, 1, 4, 8, 1], but must have [2, B = 1, T = 4, G = 1, D = 8]", [&] {
      r.ring.forward(r.stream, 0, r.pair().reshape({2, 1, 4, 8, 1}), {}, r.visitor);
    });
    expect_refused("kv has dtype float64, but must have dtype float32", [&] {
      r.ring.forward(r.stream, 0, host_view(wide.data(), {2, 1, 4, 1, 8}), {}, r.visitor);
    });
    expect_refused("kv is on cuda:1, but must be on cpu",
                   [&] { r.ring.forward(r.stream, 0, on_gpu(r.pair()), {}, r.visitor); });
    expect_refused("kv is null, but must have memory for 64 elements", [&] {
      r.ring.forward(r.stream, 0, {nullptr, {2, 1, 4, 1, 8}, DType::float32, Device::cpu()}, {}, r.visitor);
    });
    expect_refused("documents has the shape [4], but must have [B = 1, T = 4]",
                   [&] { r.ring.forward(r.stream, 0, r.pair(), host_view(ids.data(), {4}), r.visitor); });
    expect_refused("documents has dtype float32, but must have dtype int32", [&] {
      r.ring.forward(r.stream, 0, r.pair(), host_view(r.kv.data(), {1, 4}), r.visitor);
    });
    expect_refused("dkv has dtype float64, but must have dtype float32", [&] {
      r.ring.backward(r.stream, 0, r.pair(), {}, host_view(wide.data(), {2, 1, 4, 1, 8}), r.visitor);
    });
    expect_refused("visitor must be a function, not empty", [&] { r.ring.forward(r.stream, 0, r.pair(), {}, {}); });
  });
}

TEST(WrongUsesOfRanks, ARingBeginsWithWhatEveryRankHas) {
  with_ranks(1, [&](Communicator& world) {
    RingOfOne r(world);
    expect_refused("there is no schedule 0: Ring::begin has set 0, numbered from 0, one for each mask",
                   [&] { r.ring.forward(r.stream, 0, r.pair(), {}, r.visitor); });
    r.begin();
    expect_refused("there is no schedule 2: Ring::begin has set 1, numbered from 0, one for each mask", [&] {
      r.ring.forward(r.stream, {/*of_layer=*/0, /*of_schedule=*/2}, r.pair(), {}, r.visitor);
    });
    expect_refused("masks must not be empty",
                   [&] { r.ring.begin(std::span<const AttentionMask>(), r.extents, r.segments, 1); });
    expect_refused("extents has size 1, segments has 0, but both must have the ring's size, 1",
                   [&] { r.ring.begin(AttentionMask{}, r.extents, {}, 1); });
    expect_refused("extents[0] has size 1, but must have the number of sequences, 2",
                   [&] { r.ring.begin(AttentionMask{}, r.extents, r.segments, 2); });
    const std::vector<DocumentStarts> documents(3, DocumentStarts{0});
    expect_refused("documents has size 3, but must be empty or have one entry for each of 1 sequences",
                   [&] { r.ring.begin(AttentionMask{}, r.extents, r.segments, 1, documents); });
  });
}

TEST(WrongUsesOfRanks, ARingFitsItsCommunicatorAndItsCapacity) {
  with_ranks(2, [&](Communicator& world) {
    Allocator allocator(Device::cpu());
    const RingCapacity small{.tokens = 4, .gradient_tokens = 2, .G = 1, .D = 8};
    expect_refused("the ring has 3 ranks; the communicator has 2", [&] { Ring(allocator, &world, 3, small); });
    expect_refused("a ring cannot have 0 ranks; it needs one or more", [&] { Ring(allocator, nullptr, 0, small); });
    expect_refused("a ring of 2 ranks has no communicator, which only a plan may omit",
                   [&] { Ring(allocator, nullptr, 2, small); });
    ThreadPool pool(1);
    Stream stream(pool);
    Ring ring(allocator, &world, 2, small);
    const auto begin = [&](std::int64_t S, const CallerLine& line) {
      const Shards shards = shards_of(Layout::contiguous, S, 2);
      ring.begin(AttentionMask{}, shards.extents, shards.segments, 1, {}, line);
    };
    expect_refused(
        "a micro-batch of 1 sequences, of 5 tokens on the rank that has the most, needs RingCapacity::tokens = 5 or "
        "more, but the ring was made for 4",
        [&] { begin(10, CallerLine::current()); });
    begin(8, CallerLine::current());
    std::vector<float> kv(64), dkv(64);
    expect_refused(
        "a micro-batch of 1 sequences, of 4 tokens on the rank that has the most, needs RingCapacity::gradient_tokens "
        "= 4 or more, but the ring was made for 2",
        [&] {
          ring.backward(stream, 0, host_view(kv.data(), {2, 1, 4, 1, 8}), {}, host_view(dkv.data(), {2, 1, 4, 1, 8}),
                        [](const RingBlock&) {});
        });
    Allocator plan(Device::cpu(), Allocator::Mode::plan);
    Ring planned(plan, nullptr, 2, small);
    expect_refused("a ring without a communicator is only a plan and cannot run",
                   [&] { planned.begin(AttentionMask{}, {}, {}, 1); });
  });
}

}  // namespace
}  // namespace ringtrain::testing
