// Messages between tensors in GPU memory, with any carrier: they wait for the work that computes what they send, and
// the work that uses what they bring waits for them, in any order that the device chooses; the host waits for neither.
// Ranks are threads; in gpu_mpi_tests, those that NCCL connects are processes.
#include <cmath>
#include <cstring>
#include <functional>
#include <vector>

#include "parallel/collectives.h"
#include "tests/parallel/cuda/gpu_ranks.h"
#include "tests/parallel/run_ranks.h"

namespace ringtrain::testing {
namespace {

class DeviceExchange : public GpuRanks, public ::testing::WithParamInterface<Carrier> {
 protected:
  /// Runs body on this many ranks, if there are enough GPUs.
  void run(int ranks, const std::function<void(GpuRank& rank, int r)>& body) {
    if (!has_gpus_for(ranks, GetParam())) GTEST_SKIP() << "too few GPUs";
    run_ranks({.ranks = ranks, .timeout_seconds = 30}, [&](Communicator& world) {
      GpuRank rank(world, GetParam());
      body(rank, world.rank());
    });
  }
};

/// Fills x with random numbers of this rank.
void fill_random(Stream& stream, const TensorView& x, int rank) {
  fill_normal(stream, x, 1, 17, 1000 * static_cast<std::uint64_t>(rank));
}

/// Returns the orders in which a carrier can add.
std::vector<SumOrder> orders_of(Carrier carrier) {
  return carrier == Carrier::nccl ? std::vector{SumOrder::by_rank, SumOrder::by_communicator}
                                  : std::vector{SumOrder::by_rank};
}

/// Sums random numbers over ranks with a reduce-scatter, which rounds at each of them, and gathers the sums. Returns
/// their bytes.
std::vector<std::uint8_t> reduced(GpuRank& rank, DType dtype, std::int64_t n, SumOrder order = SumOrder::by_rank) {
  const auto make = [&](const char* name, std::int64_t elements) {
    return rank.allocator.make(Tag::workspace, name, dtype, {elements});
  };
  const bool stages = order == SumOrder::by_rank;
  const Tensor x = make("x", n), staging = make("staging", stages ? reduce_scatter_staging(n, rank.ranks->size()) : 0);
  fill_random(rank.stream, x, rank.ranks->rank());
  ReduceScatter reduction;
  reduction.start(*rank.ranks, x, staging, {"sum"}, order);
  reduction.finish(rank.stream);
  all_gather_slices(*rank.ranks, x, {"gather"});
  std::vector<std::uint8_t> bytes(x.view().bytes());
  copy(rank.stream, TensorView{bytes.data(), {n}, dtype, Device::cpu()}, x);
  return bytes;
}

TEST_P(DeviceExchange, FollowsTheWorkOfBothRanks) {
  constexpr int ranks = 3, rounds = 5;
  constexpr std::int64_t n = 1000;
  run(ranks, [&](GpuRank& rank, int r) {
    const int right = (r + 1) % ranks, left = (r + ranks - 1) % ranks;
    const Tensor sum = rank.make(n, 0), sent = rank.make(n, r + 1), received = rank.make(n, -1e30);
    double expected = 0;
    for (int round = 0; round < rounds; ++round) {
      const Request request = rank.ranks->exchange(sent, right, received, left, {"test"});
      add(rank.stream, sum, sum);  // during the message
      rank.ranks->wait(request);
      add(rank.stream, sum, received);
      copy(rank.stream, sent, received);  // the next round sends it on
      fill(rank.stream, received, -1e30);
      expected = 2 * expected + (r - 1 - round + 2 * ranks) % ranks + 1;
    }
    EXPECT_EQ(rank.read(sum), std::vector<float>(n, static_cast<float>(expected)));
  });
}

TEST_P(DeviceExchange, WaitsForEachRequestOnItsOwn) {
  // Several concurrent exchanges, waited for in another order; the data of an unfinished one is not needed yet.
  run(2, [&](GpuRank& rank, int r) {
    std::vector<Tensor> sent, received;
    std::vector<Request> requests;
    for (int i = 0; i < 4; ++i) {
      sent.push_back(rank.make(100 + i, 10 * r + i));
      received.push_back(rank.make(100 + i, -1));
      requests.push_back(rank.ranks->exchange(sent.back(), 1 - r, received.back(), 1 - r, {"test"}));
    }
    for (const std::size_t i : {2, 0, 3, 1}) {
      rank.ranks->wait(requests[i]);
      EXPECT_EQ(rank.read(received[i]),
                std::vector<float>(100 + i, static_cast<float>(10 * (1 - r)) + static_cast<float>(i)));
    }
  });
}

TEST_P(DeviceExchange, AGroupIsOneActInAnyOrder) {
  // Each rank sends two messages to every rank, including itself, and nothing to its right neighbor; each goes through
  // its peers in a different order.
  constexpr int ranks = 4;
  run(ranks, [&](GpuRank& rank, int r) {
    const auto size = [](int from, int to, int i) { return 1 + 16 * from + 4 * to + i; };
    const auto value = [](int from, int to, int i) { return 100.0 * from + 10.0 * to + i; };
    struct Message {
      Tensor memory;
      int peer, index;
    };
    for (int round = 0; round < 2; ++round) {
      std::vector<Message> sent, received;
      for (int k = 0; k < ranks; ++k) {
        for (int i = 0; i < 2; ++i) {
          const int to = (3 * r + k) % ranks, from = (r + 1 + k) % ranks;
          sent.push_back({rank.make(size(r, to, i), value(r, to, i)), to, i});
          received.push_back({rank.make(size(from, r, i), -1), from, i});
        }
      }
      const Tensor nothing = rank.allocator.make(Tag::workspace, "nothing", DType::float32, {0});
      std::vector<Request> requests;
      post_together(*rank.ranks, [&] {
        requests.push_back(rank.ranks->exchange(nothing, (r + 1) % ranks, nothing, (r + 3) % ranks, {"nothing"}));
        for (const Message& one : sent) {
          if (one.peer == r) continue;
          requests.push_back(rank.ranks->exchange(one.memory, one.peer, {}, no_peer, {"test"}));
        }
        for (const Message& one : received) {
          if (one.peer == r) continue;
          requests.push_back(rank.ranks->exchange({}, no_peer, one.memory, one.peer, {"test"}));
        }
        for (const Message& one : sent) {
          for (const Message& own : received) {
            if (one.peer != r || own.peer != r || one.index != own.index) continue;
            requests.push_back(rank.ranks->exchange(one.memory, r, own.memory, r, {"to itself"}));
          }
        }
      });
      for (const Request request : requests) rank.ranks->wait(request);
      for (const auto& [memory, from, i] : received) {
        EXPECT_EQ(rank.read(memory), std::vector<float>(static_cast<std::size_t>(size(from, r, i)),
                                                        static_cast<float>(value(from, r, i))));
      }
    }
  });
}

TEST_P(DeviceExchange, SumsAndGathersSlices) {
  constexpr int ranks = 4;
  for (const std::int64_t n : {1003, 3, 1000, 4}) {  // with 3 elements, one rank has none; 1000 are in even slices
    for (const SumOrder order : orders_of(GetParam())) {
      run(ranks, [&](GpuRank& rank, int r) {
        const Tensor x = rank.make(n, r + 1);
        const Tensor staging = rank.make(reduce_scatter_staging(n, ranks), -1e30);
        ReduceScatter reduction;
        reduction.start(*rank.ranks, x, staging, {"sum"}, order);
        reduction.finish(rank.stream);
        all_gather_slices(*rank.ranks, x, {"gather"});
        EXPECT_EQ(rank.read(x), std::vector<float>(static_cast<std::size_t>(n), 10)) << n;
      });
    }
  }
}

TEST_P(DeviceExchange, SumsOfAnyOrderAreWithinTheirRounding) {
  constexpr int ranks = 4;
  for (const std::int64_t n : {1003, 1000}) {
    for (const SumOrder order : orders_of(GetParam())) {
      run(ranks, [&](GpuRank& rank, int) {
        std::vector<double> expected(n), sizes(expected.size());
        const Tensor x = rank.make(n, 0);
        for (int other = 0; other < ranks; ++other) {
          fill_random(rank.stream, x, other);
          const std::vector<float> part = rank.read(x);
          for (std::size_t i = 0; i < part.size(); ++i) {
            expected[i] += double{part[i]};
            sizes[i] += std::abs(double{part[i]});
          }
        }
        const std::vector<std::uint8_t> bytes = reduced(rank, DType::float32, n, order);
        std::vector<float> sums(expected.size());
        std::memcpy(sums.data(), bytes.data(), bytes.size());
        for (std::size_t i = 0; i < sums.size(); ++i) {
          ASSERT_NEAR(double{sums[i]}, expected[i], ranks * 6e-8 * sizes[i]) << "element " << i << " of " << n;
        }
#if defined(RINGTRAIN_CUDA_EMULATED)
        if (order == SumOrder::by_communicator) {  // in the emulator, it goes around the ranks
          EXPECT_NE(bytes, reduced(rank, DType::float32, n)) << n;
        }
#endif
      });
    }
  }
}

TEST_P(DeviceExchange, SlicesMoveDuringAndInOrderWithExchanges) {
  constexpr int ranks = 3, rounds = 4;
  constexpr std::int64_t n = 999;
  run(ranks, [&](GpuRank& rank, int r) {
    const auto gradients = rank.ranks->split(0);  // as in training, a different communicator than the ring's
    gradients->set_stream(rank.stream);
    const int right = (r + 1) % ranks, left = (r + ranks - 1) % ranks;
    const Tensor x = rank.make(n, 1), sent = rank.make(n, r), received = rank.make(n, -1);
    const Tensor staging = rank.make(reduce_scatter_staging(n, ranks), -1e30);
    double expected = 1;
    for (int round = 0; round < rounds; ++round) {
      ReduceScatter reduction;
      reduction.start(*gradients, x, staging, {"sum"}, orders_of(GetParam()).back());
      const Request request = rank.ranks->exchange(sent, right, received, left, {"test"});
      fill(rank.stream, rank.make(n, round), 2);  // during both
      reduction.finish(rank.stream);
      rank.ranks->wait(request);
      all_gather_slices(*gradients, x, {"gather"});
      copy(rank.stream, sent, received);
      expected *= ranks;
    }
    EXPECT_EQ(rank.read(x), std::vector<float>(n, static_cast<float>(expected)));
    EXPECT_EQ(rank.read(sent), std::vector<float>(n, static_cast<float>((r + ranks * rounds - rounds) % ranks)));
  });
}

TEST_P(DeviceExchange, SumsHaveTheBitsOfThreads) {
  constexpr int ranks = 4;
  constexpr std::int64_t n = 1003;
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    std::vector<std::uint8_t> expected;
    launch_threads({.ranks = ranks, .timeout_seconds = 30}, [&](Communicator& world) {
      GpuRank rank(world, Carrier::threads);
      auto bytes = reduced(rank, dtype, n);
      if (world.rank() == 0) expected = std::move(bytes);
    });
    run(ranks, [&](GpuRank& rank, int) { EXPECT_EQ(reduced(rank, dtype, n), expected); });
  }
}

TEST_P(DeviceExchange, LargeMessagesArriveWhole) {
  // More than a socket between processes accepts at once, in both directions.
  constexpr std::int64_t n = (std::int64_t{3} << 20) + 1;
  run(2, [&](GpuRank& rank, int r) {
    const Tensor sent = rank.make(n, r + 1), received = rank.make(n, -1);
    const Request request = rank.ranks->exchange(sent, 1 - r, received, 1 - r, {"large"});
    rank.ranks->wait(request);
    EXPECT_EQ(rank.read(received), std::vector<float>(n, static_cast<float>(2 - r)));
  });
}

TEST_P(DeviceExchange, BroadcastsAndSplits) {
  constexpr int ranks = 4;
  run(ranks, [&](GpuRank& rank, int r) {
    const auto row = rank.ranks->split(r / 2 - 1);  // {0 1} {2 3}, colors -1 and 0
    const auto itself = row->split(r);
    EXPECT_EQ(row->size(), 2);
    EXPECT_EQ(row->rank(), r % 2);
    EXPECT_EQ(itself->size(), 1);
    const Tensor x = rank.make(50, r);
    broadcast(*row, x, 1, {"row"});
    EXPECT_EQ(rank.read(x), std::vector<float>(50, static_cast<float>(r | 1)));
    broadcast(*rank.ranks, x, 0, {"all"});
    EXPECT_EQ(rank.read(x), std::vector<float>(50, 1));
    const Tensor own = rank.make(7, 10 + r), back = rank.make(7, 0);
    itself->wait(itself->exchange(own, 0, back, 0, {"to itself"}));
    EXPECT_EQ(rank.read(back), std::vector<float>(7, static_cast<float>(10 + r)));
  });
}

TEST_P(DeviceExchange, HostMemoryGoesAtOnceMeanwhile) {
  run(2, [&](GpuRank& rank, int r) {
    const Tensor sent = rank.make(500, r + 1), received = rank.make(500, -1);
    Request request;
    double value = r + 1;
    std::vector<double> theirs(3), mine(3, r + 1);
    post_together(*rank.ranks, [&] {
      request = rank.ranks->exchange(sent, 1 - r, received, 1 - r, {"device"});
      const Request host =
          rank.ranks->exchange(host_view(mine.data(), {3}), 1 - r, host_view(theirs.data(), {3}), 1 - r, {"host"});
      rank.ranks->wait(host);  // host memory is not part of the group's operation on the GPU
    });
    EXPECT_EQ(theirs, std::vector<double>(3, 2 - r));
    all_reduce_sum(*rank.ranks, {&value, 1}, {"host"});
    EXPECT_EQ(value, 3);
    rank.ranks->barrier({"host"});
    rank.ranks->wait(request);
    EXPECT_EQ(rank.read(received), std::vector<float>(500, static_cast<float>(2 - r)));
  });
}

INSTANTIATE_TEST_SUITE_P(By, DeviceExchange, ::testing::Values(Carrier::threads, Carrier::nccl),
                         [](const auto& one) { return name_of(one.param); });

}  // namespace
}  // namespace ringtrain::testing
