// Communicators: messages of every size and order, splitting; with ranks that are threads, also every way to fail: the
// first error ends all ranks, names the cause, and leaves no buffer in use. (For processes: mpi_failure_test.cpp.)
#include <gtest/gtest.h>
#include <time.h>  // NOLINT(modernize-deprecated-headers): clock_gettime is POSIX

#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <span>
#include <thread>

#include "parallel/collectives.h"
#include "parallel/launch/launch.h"
#include "tests/parallel/failed_launch.h"
#include "tests/parallel/run_ranks.h"
#include "tests/support/random_tensor.h"

namespace ringtrain::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr CallSite test_site{.operation = "test message", .layer = 3, .hop = 2};

// --- Messages.

TEST(Communicator, RingOfMessagesOfEverySizeAtOnce) {
  // Every rank sends all sizes to its right neighbor before any of them has waited: blocking sends would hang here.
  const std::vector<std::size_t> sizes{0, 1, 63, 4096, 1 << 20, 0, 32 << 20};
  run_ranks({.ranks = 3}, [&](Communicator& world) {
    const int right = (world.rank() + 1) % 3, left = (world.rank() + 2) % 3;
    std::vector<std::vector<std::uint8_t>> sent, received;
    std::vector<Request> requests;
    for (const std::size_t size : sizes) {
      sent.emplace_back(size, static_cast<std::uint8_t>(17 * world.rank() + 1 + sent.size()));
      received.emplace_back(size, std::uint8_t{0});
    }
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      requests.push_back(world.exchange(view_of(sent[i]), right, view_of(received[i]), left, test_site));
    }
    for (const Request request : requests) world.wait(request);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const auto expected = static_cast<std::uint8_t>(17 * left + 1 + i);
      EXPECT_TRUE(std::all_of(received[i].begin(), received[i].end(), [&](auto byte) { return byte == expected; }));
    }
  });
}

TEST(Communicator, KeepsTheOrderBetweenTwoRanks) {
  // Message i between each pair has a unique size and content; posts and waits are in random order of pairs, with
  // random pauses.
  constexpr int N = 4, messages = 60;
  run_ranks({.ranks = N}, [&](Communicator& world) {
    std::mt19937 random(static_cast<unsigned>(world.rank()));
    const auto content = [](int from, int to, int i) {
      return std::vector<std::int32_t>(static_cast<std::size_t>(i * 37 % 91), 1000000 * from + 10000 * to + i);
    };
    struct Box {
      std::vector<std::int32_t> sent, received;
      int from;
      int index;
      Request request;
    };
    std::vector<std::vector<Box>> boxes(N);
    std::vector<int> next(N, 0);
    for (auto& list : boxes) list.reserve(messages);
    for (int left = N * messages; left > 0;) {
      const int shift = static_cast<int>(random() % N);
      const auto s = static_cast<std::size_t>(shift);
      if (next[s] == messages) continue;
      // Both here and below, sleeps vary the order of arrival.
      if (random() % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 200));
      const int to = (world.rank() + shift) % N, from = (world.rank() - shift + N) % N, i = next[s]++;
      Box& box = boxes[s].emplace_back(Box{content(world.rank(), to, i), content(0, 0, i), from, i, {}});
      box.request = world.exchange(view_of(box.sent), to, view_of(box.received), from, test_site);
      --left;
    }
    std::vector<Box*> order;
    for (auto& list : boxes) {
      for (Box& box : list) order.push_back(&box);
    }
    std::shuffle(order.begin(), order.end(), random);
    for (Box* box : order) {
      world.wait(box->request);
      EXPECT_EQ(box->received, content(box->from, world.rank(), box->index));
    }
  });
}

TEST(Communicator, SendsToItselfAndHalves) {
  run_ranks({.ranks = 2}, [](Communicator& world) {
    const std::vector<double> sent{1.0 + world.rank(), 2.0};
    std::vector<double> received(2);
    world.wait(world.exchange(view_of(sent), world.rank(), view_of(received), world.rank(), test_site));
    EXPECT_EQ(received, sent);
    // One direction only; it is allowed to wait on nothing.
    if (world.rank() == 0) {
      world.wait(world.exchange(view_of(sent), 1, {}, no_peer, test_site));
    } else {
      world.wait(world.exchange({}, no_peer, view_of(received), 0, test_site));
      EXPECT_EQ(received, (std::vector<double>{1.0, 2.0}));
    }
    world.wait({});
    world.wait(world.exchange({}, no_peer, {}, no_peer, test_site));
    // A message without bytes needs no memory, but still waits for its other side.
    world.wait(world.exchange(TensorView{nullptr, {0}, DType::float32, {}}, 1 - world.rank(),
                              {nullptr, {0, 4}, DType::float32, {}}, 1 - world.rank(), test_site));
  });
}

TEST(Communicator, BarrierHoldsEveryone) {
  run_ranks({.ranks = 5}, [&](Communicator& world) {
    std::mt19937 random(static_cast<unsigned>(world.rank()));
    for (int round = 1; round <= 100; ++round) {
      if (random() % 4 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 3000));
      const std::int64_t before = steady_clock::now().time_since_epoch().count();  // one clock for the whole machine
      world.barrier(test_site);
      const std::int64_t after = steady_clock::now().time_since_epoch().count();
      std::vector<std::int64_t> bounds{before, -after};
      all_reduce_max(world, std::span<std::int64_t>(bounds), test_site);
      EXPECT_LE(bounds[0], -bounds[1]) << "a rank has left before the last one came";
    }
  });
}

TEST(Communicator, SplitsByColorInRankOrderAndAgain) {
  run_ranks({.ranks = 6}, [](Communicator& world) {
    const auto row = world.split(world.rank() / 3);          // {0 1 2} {3 4 5}
    const auto column = world.split(-7 + world.rank() % 3);  // {0 3} {1 4} {2 5}
    EXPECT_EQ(row->size(), 3);
    EXPECT_EQ(row->rank(), world.rank() % 3);
    EXPECT_EQ(column->size(), 2);
    EXPECT_EQ(column->rank(), world.rank() / 3);
    const auto pair = row->split(row->rank() == 1);  // nested: {0 2} {1} {3 5} {4}
    EXPECT_EQ(pair->size(), row->rank() == 1 ? 1 : 2);
    EXPECT_EQ(pair->rank(), row->rank() == 2 ? 1 : 0);
    // The same two ranks on two communicators: messages do not mix, for any order of posts.
    const auto again = row->split(0);
    std::vector<int> a(1), b(1);
    const std::vector<int> one{1}, two{2};
    const int right = (row->rank() + 1) % 3, left = (row->rank() + 2) % 3;
    Request first, second;
    if (row->rank() == 0) {
      first = row->exchange(view_of(one), right, view_of(a), left, test_site);
      second = again->exchange(view_of(two), right, view_of(b), left, test_site);
    } else {
      second = again->exchange(view_of(two), right, view_of(b), left, test_site);
      first = row->exchange(view_of(one), right, view_of(a), left, test_site);
    }
    row->wait(first);
    again->wait(second);
    EXPECT_EQ(a[0], 1);
    EXPECT_EQ(b[0], 2);
    pair->barrier(test_site);
    column->barrier(test_site);
  });
}

TEST(Communicator, WaitsWithoutSpinning) {
  run_ranks({.ranks = 2}, [](Communicator& world) {
    if (world.rank() == 0) {
      std::this_thread::sleep_for(milliseconds(300));  // the measured wait
      world.barrier(test_site);
      return;
    }
    timespec before{}, after{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
    world.barrier(test_site);
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
    const double used =
        static_cast<double>(after.tv_sec - before.tv_sec) + 1e-9 * static_cast<double>(after.tv_nsec - before.tv_nsec);
    EXPECT_LT(used, 0.05);
  });
}

// --- Failures.

void expect_timeout(int ranks, std::initializer_list<const char*> words, const RankBody& body) {
  expect_failure(ranks, ExitCode::rank, words, body, /*timeout_seconds=*/1.5);
}

TEST(ThreadCommunicatorFailure, TimeoutNamesWhoWaitsForWhom) {
  std::vector<double> buffer(5);
  expect_timeout(4, {"rank 2 of 4", "1.5 s", "test message, layer 3, hop 2: rank 1 has not sent the 40 expected bytes"},
                 [&](Communicator& world) {
                   if (world.rank() != 2) return;
                   world.wait(world.exchange({}, no_peer, view_of(buffer), 1, test_site));
                 });
  expect_timeout(4, {"rank 3 of 4", "odd: rank 1 has not received the 40 bytes"}, [&](Communicator& world) {
    const auto odd = world.split(world.rank() % 2);
    if (world.rank() == 3) odd->wait(odd->exchange(view_of(buffer), 0, {}, no_peer, {.operation = "odd"}));
  });  // world ranks
  expect_timeout(4, {"of 4", "test message, layer 3, hop 2", "waiting for rank 1, 3"}, [&](Communicator& world) {
    if (world.rank() % 2 == 0) world.barrier(test_site);
  });
  expect_timeout(3, {"split: rank 1 has not"}, [&](Communicator& world) {
    if (world.rank() != 1) world.split(0);
  });
}

TEST(ThreadCommunicatorFailure, SizesMustAgree) {
  for (const bool receiver_first : {true, false}) {
    const std::vector<double> sent(3);
    std::vector<double> received(4);
    const auto words = {"rank 0 sends 24 bytes (three, hop 1) to rank 1", "expects 32 bytes (four)"};
    expect_failure(3, ExitCode::rank, words, [&](Communicator& world) {
      if (world.rank() == 2) world.barrier(test_site);
      if ((world.rank() == 0) == receiver_first)
        std::this_thread::sleep_for(milliseconds(50));  // either order gives the message
      if (world.rank() == 0)
        world.wait(world.exchange(view_of(sent), 1, {}, no_peer, {.operation = "three", .hop = 1}));
      if (world.rank() == 1) world.wait(world.exchange({}, no_peer, view_of(received), 0, {.operation = "four"}));
    });
  }
}

TEST(ThreadCommunicatorFailure, AbortWakesEveryWaitEverywhere) {
  std::atomic<int> ended{0};
  expect_failure(5, ExitCode::numeric, {"the first error"}, [&](Communicator& world) {
    const auto pair = world.split(world.rank() / 2);  // {0 1} {2 3} {4}
    std::vector<double> buffer(8);
    const auto expect_ended = [&](const auto& call) {
      expect_error(ExitCode::numeric, "the first error", call);
      ++ended;
    };
    if (world.rank() == 4) {  // from a thread that is not a rank
      std::thread([&] {
        std::this_thread::sleep_for(milliseconds(100));  // most wait by then; all end in any case
        pair->abort(Error(ExitCode::numeric, "the first error"));
        pair->abort(Error(ExitCode::data, "a second one"));
      }).join();
    } else if (world.rank() == 0) {
      expect_ended([&] { pair->barrier(test_site); });
    } else if (world.rank() == 1) {
      expect_ended([&] { world.split(0); });
    } else if (world.rank() == 2) {
      expect_ended([&] { pair->wait(pair->exchange(view_of(buffer), 1, {}, no_peer, test_site)); });
    } else {
      expect_ended([&] { world.wait(world.exchange({}, no_peer, view_of(buffer), 4, test_site)); });
    }
    // And so does every later call.
    expect_ended([&] { world.exchange(view_of(buffer), world.rank(), {}, no_peer, test_site); });
    expect_ended([&] { pair->barrier(test_site); });
    expect_ended([&] { world.split(1); });
    fail(ExitCode::numeric, "the first error");
  });
  EXPECT_EQ(ended, 4 + 3 * 5);
}

TEST(ThreadCommunicatorFailure, UnwindingLeavesNoBufferInUse) {
  // Rank 0 posts sends and receives from memory that it frees while it unwinds; meanwhile, the others post the other
  // sides. AddressSanitizer, or a canary, detects copies from or to the freed memory.
  for (int trial = 0; trial < 50; ++trial) {
    expect_failure(3, ExitCode::data, {"rank 0 has bad data"}, [&](Communicator& world) {
      const std::size_t size = 1 << 16;
      if (world.rank() == 0) {
        const auto sent = std::make_unique<std::vector<std::uint8_t>>(size, std::uint8_t{42});
        std::vector<std::vector<std::uint8_t>> received(8, std::vector<std::uint8_t>(size));
        const auto own = world.split(0);  // destroyed first: withdraws unmatched messages
        for (std::size_t i = 0; i < 8; ++i) {
          const int peer = 1 + static_cast<int>(i % 2);
          own->exchange(view_of(*sent), peer, view_of(received[i]), peer, test_site);
        }
        std::this_thread::sleep_for(std::chrono::microseconds(20 * trial));
        fail(ExitCode::data, "rank 0 has bad data");
      }
      const auto own = world.split(0);
      std::vector<std::vector<std::uint8_t>> received(4, std::vector<std::uint8_t>(size));
      const std::vector<std::uint8_t> sent(size, 7);
      std::vector<Request> requests;
      for (auto& buffer : received) requests.push_back(own->exchange(view_of(sent), 0, view_of(buffer), 0, test_site));
      for (std::size_t i = 0; i < requests.size(); ++i) {
        own->wait(requests[i]);
        EXPECT_TRUE(std::all_of(received[i].begin(), received[i].end(), [](auto byte) { return byte == 42; }));
      }
      world.barrier(test_site);
    });
  }
}

}  // namespace
}  // namespace ringtrain::testing
