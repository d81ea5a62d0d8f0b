// How ranks connected by NCCL fail, which only the emulator can cause: an exchange that never ends, errors of NCCL in
// every call and asynchronously, ranks that die at any point, memory that is freed while it is in use. The first error
// ends all ranks quickly, names the cause, and leaves no kernel of NCCL on a GPU. (What NCCL transfers like other
// carriers: device_exchange_test.cpp, gpu_ring_test.cpp.)
#if defined(RINGTRAIN_CUDA_EMULATED)

#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <thread>

#include "framework/cuda/check.h"
#include "parallel/collectives.h"
#include "tests/parallel/cuda/gpu_ranks.h"
#include "tests/parallel/failed_launch.h"
#include "tests/support/paths.h"

namespace ringtrain::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr double timeout = 1.25;      // if it must pass
constexpr double long_timeout = 120;  // if it must not: it would be too late

class NcclFailure : public GpuRanks {};

/// Expects a failure of ranks that are connected. impatient: the rank with the short timeout.
void expect_connected_failure(int ranks, ExitCode code, std::initializer_list<const char*> words,
                              const std::function<void(Communicator& world, GpuRank& rank)>& body, int impatient = -1) {
  expect_failure(ranks, code, words, [&](Communicator& world) {
    GpuRank rank(world, Carrier::nccl, world.rank() == impatient ? timeout : long_timeout);
    connect(rank);
    body(world, rank);
  });
}

// --- Operations that never end.

TEST_F(NcclFailure, AnUnansweredExchangeTimesOut) {
  const auto words = {"rank 2 of 3", "1.25 s", "test message, layer 3, hop 2", "mesh.timeout_seconds"};
  expect_connected_failure(
      3, ExitCode::rank, words,
      [](Communicator& world, GpuRank& rank) {
        if (world.rank() == 2) {
          const Tensor x = rank.make(100, 0);
          rank.ranks->wait(rank.ranks->exchange({}, no_peer, x, 1, test_site));
          rank.stream.synchronize();  // the GPU is free again
        }
        world.barrier({"the end"});
      },
      2);
}

TEST_F(NcclFailure, AnExchangeThatHangsOnOneGpuTimesOutOnAny) {
  for (const int shorter : {0, 1}) {
    const auto words = {"of 2 waited 1.25 s (mesh.timeout_seconds) in test message, layer 3, hop 2 on its GPU"};
    expect_connected_failure(
        2, ExitCode::rank, words,
        [&](Communicator& world, GpuRank& rank) {
          around(rank);
          if (world.rank() == 1) cuda_emulator::hang_nccl_group(1, 1);
          around(rank);
          world.barrier({"the end"});
        },
        shorter);
  }
}

TEST_F(NcclFailure, ATimeoutNamesAllThatBeganTogether) {
  expect_failure(2, ExitCode::rank, {"keys, layer 1, hop 2; documents, layer 1, hop 2"}, [](Communicator& world) {
    GpuRank rank(world, Carrier::nccl, timeout);
    connect(rank);
    const Tensor x = rank.make(8, 0);
    if (world.rank() == 0) {
      Request request;
      post_together(*rank.ranks, [&] {
        rank.ranks->exchange(x, 1, {}, no_peer, {"keys", 1, 2});
        request = rank.ranks->exchange({}, no_peer, x, 1, {"documents", 1, 2});
      });
      rank.ranks->wait(request);
      rank.stream.synchronize();
    }
    world.barrier({"the end"});
  });
}

TEST_F(NcclFailure, AnUnansweredFirstMessageTimesOut) {
  // Two ranks connect with their first message, for which the host waits.
  const auto words = {"rank 0 of 2", "1.25 s", "to reach test message, layer 3, hop 2"};
  expect_failure(2, ExitCode::rank, words, [](Communicator& world) {
    GpuRank rank(world, Carrier::nccl, world.rank() == 0 ? timeout : long_timeout);
    const Tensor x = rank.make(100, 0);
    if (world.rank() == 0) rank.ranks->exchange(x, 1, {}, no_peer, test_site);
    world.barrier({"the end"});
  });
}

TEST_F(NcclFailure, ARankThatNeverJoinsTimesOut) {
  const auto words = {"rank 0 of 2 waited 1.25 s", "to reach joining the ranks"};
  expect_failure(2, ExitCode::rank, words, [](Communicator& world) {
    if (world.rank() == 0) {
      GpuRank rank(world, Carrier::nccl, timeout);
    } else {  // joining's operations on the host
      const std::vector<std::int64_t> own{7, 7, 7};
      all_gather(world, own, {"gather of GPUs"});
      const auto host = world.split(0);
      std::vector<std::uint8_t> id(NCCL_UNIQUE_ID_BYTES);
      broadcast(*host, host_view(id.data(), {NCCL_UNIQUE_ID_BYTES}), 0, {"sending NCCL's unique id to all ranks"});
      world.barrier({"the end"});
    }
  });
}

void CUDART_CB sleep_long(void*) {
  std::this_thread::sleep_for(milliseconds(1600));
}

TEST_F(NcclFailure, TimeCountsFromWhenTheGpuHasWhatItSends) {
  // Rank 0's GPU is busy for longer than its timeout, twice, before the data to exchange is ready.
  launch_threads({.ranks = 2, .timeout_seconds = 30}, [](Communicator& world) {
    GpuRank rank(world, Carrier::nccl, world.rank() == 0 ? timeout : long_timeout);
    connect(rank);
    const Tensor sent = rank.make(10, world.rank()), received = rank.make(10, -1), again = rank.make(10, -1);
    const auto be_busy = [&] {
      if (world.rank() > 0) return;
      cuda::check(cudaLaunchHostFunc(rank.stream.cuda().stream(), sleep_long, nullptr), "sleeping");
    };
    be_busy();
    rank.ranks->wait(post_around(rank, sent, received));
    be_busy();
    rank.ranks->wait(post_around(rank, received, again));
    EXPECT_EQ(rank.read(again), std::vector<float>(10, static_cast<float>(world.rank())));
  });
}

// --- NCCL's own errors.

TEST_F(NcclFailure, AnErrorBehindItsBackEndsAllRanks) {
  for (const auto& [result, code, words] :
       {std::tuple{ncclSystemError, ExitCode::device, "unhandled system error (an error that a test wants)"},
        {ncclRemoteError, ExitCode::rank, "remote process exited"}}) {
    expect_connected_failure(3, code, {"rank 1 of 3", words}, [&, wanted = result](Communicator& world, GpuRank& rank) {
      if (world.rank() == 1) cuda_emulator::break_nccl_group(1, 2, wanted);
      for (int i = 0; i < 5; ++i) around(rank);
    });
  }
}

TEST_F(NcclFailure, AnErrorBetweenExchangesIsSeenToo) {
  expect_connected_failure(
      2, ExitCode::device, {"rank 0 of 2: NCCL reports: internal error"}, [](Communicator& world, GpuRank& rank) {
        const Tensor x = rank.make(10, 0);
        if (world.rank() == 0) {
          cuda_emulator::break_nccl_group(0, 1, ncclInternalError);
          rank.ranks->exchange(x, 1, {}, no_peer, test_site);
        }
        double never = 0;  // both wait in the communicator below
        world.wait(world.exchange({}, no_peer, host_view(&never, {1}), 1 - world.rank(), {"host"}));
      });
}

TEST_F(NcclFailure, ACallThatFailsEndsAllRanks) {
  const std::vector<int> any{1, 2, 6};
  for (const auto& [function, calls] : {std::pair{"ncclGetUniqueId", std::vector{1}},
                                        {"ncclCommInitRankConfig", {1, 2}},
                                        {"ncclCommSplit", any},
                                        {"ncclGroupStart", any},
                                        {"ncclSend", any},
                                        {"ncclRecv", any},
                                        {"ncclGroupEnd", any},
                                        {"ncclCommGetAsyncError", any}}) {
    for (const int nth : calls) {
      SCOPED_TRACE(fmt::format("{} {}", function, nth));
      const auto words = {"of 2: ", "unhandled system error", function};
      expect_failure(2, ExitCode::device, words, [&, failing = std::string(function)](Communicator& world) {
        if (world.rank() == 0) cuda_emulator::fail_nccl_call(failing, nth, ncclSystemError);
        world.barrier({"both know"});
        GpuRank rank(world, Carrier::nccl, long_timeout);
        std::vector<std::unique_ptr<Communicator>> parts;
        parts.reserve(6);
        for (int i = 0; i < 6; ++i) parts.push_back(rank.ranks->split(i));
        for (int i = 0; i < 6; ++i) around(rank);
        fail(ExitCode::data, "no call failed");
      });
    }
  }
}

TEST_F(NcclFailure, SizesThatDisagreeEndAllRanks) {
  expect_failure(2, ExitCode::device, {"rank 1 receives 48 bytes", "rank 0 sends 40"}, [](Communicator& world) {
    GpuRank rank(world, Carrier::nccl, long_timeout);
    const Tensor sent = rank.make(10, 1), received = rank.make(world.rank() == 0 ? 10 : 12, 1);
    rank.ranks->wait(post_around(rank, sent, received));
    rank.stream.synchronize();
    world.barrier({"the end"});
  });
}

TEST_F(NcclFailure, AGpuThatFailsEndsAllRanks) {
  expect_connected_failure(2, ExitCode::device, {"cudaErrorECCUncorrectable"}, [](Communicator& world, GpuRank& rank) {
    const Tensor x = rank.make(10, 0);
    world.barrier({"connected"});
    if (world.rank() == 1) {
      rank.ranks->wait(rank.ranks->exchange({}, no_peer, x, 0, test_site));
      cuda_emulator::fail_call("cudaEventQuery", 3, cudaErrorECCUncorrectable);  // the watchdog checks its progress
      rank.stream.synchronize();
    }
    world.barrier({"the end"});
  });
}

// --- Ranks that fail.

TEST_F(NcclFailure, AnErrorOfAnotherRankFreesTheGpu) {
  std::atomic<int> freed{0};
  expect_failure(3, ExitCode::numeric, {"a bad number"}, [&](Communicator& world) {
    GpuRank rank(world, Carrier::nccl, long_timeout);
    const auto part = rank.ranks->split(0);
    connect(rank);
    if (world.rank() == 2) {
      std::this_thread::sleep_for(milliseconds(200));  // most wait by then; all end in any case
      fail(ExitCode::numeric, "a bad number");
    }
    const Tensor sent = rank.make(100, 0), received = rank.make(100, 0);
    rank.ranks->wait(post_around(rank, sent, received));
    rank.stream.synchronize();  // rank 2 never arrives: until NCCL is aborted
    ++freed;
    const auto expect_ended = [](const auto& call) { expect_error(ExitCode::numeric, "a bad number", call); };
    expect_ended([&] { post_around(rank, sent, received); });
    expect_ended([&] { part->exchange(sent, (world.rank() + 1) % 3, {}, no_peer, test_site); });
    expect_ended([&] { rank.ranks->barrier(test_site); });
    expect_ended([&] { rank.ranks->split(0); });
    expect_ended([&] { part->throw_if_aborted(); });
    fail(ExitCode::data, "a later error");
  });
  EXPECT_EQ(freed, 2);
}

TEST_F(NcclFailure, WhatWasWaitedForIsNotUsedAfterAnError) {
  // A request of an aborted exchange returns the error, not the data that the aborted kernel left.
  expect_connected_failure(2, ExitCode::numeric, {"a bad number"}, [&](Communicator& world, GpuRank& rank) {
    if (world.rank() == 1) fail(ExitCode::numeric, "a bad number");
    const Tensor received = rank.make(100, 0);
    const Request request = rank.ranks->exchange({}, no_peer, received, 1, test_site);
    EXPECT_THROW(world.barrier({"until the error"}), Error);
    EXPECT_THROW(rank.ranks->wait(request), Error);
    fail(ExitCode::data, "a later error");
  });
}

TEST_F(NcclFailure, AbortEndsEveryRelatedCommunicator) {
  for (const bool from_part : {true, false}) {
    expect_failure(4, ExitCode::checkpoint, {"the first error"}, [&](Communicator& world) {
      GpuRank rank(world, Carrier::nccl, long_timeout);
      const auto part = rank.ranks->split(world.rank() / 2);
      connect(rank);
      const Tensor x = rank.make(100, 0);
      if (world.rank() == 3) {  // from a thread that is not a rank
        std::thread([&] {
          std::this_thread::sleep_for(milliseconds(100));  // most wait by then; all end in any case
          (from_part ? *part : *rank.ranks).abort(Error(ExitCode::checkpoint, "the first error"));
        }).join();
      }
      for (Communicator* one : {rank.ranks.get(), part.get()}) {
        expect_error(ExitCode::checkpoint, "the first error", [&] {
          one->wait(one->exchange({}, no_peer, x, (one->rank() + 1) % one->size(), test_site));
          rank.stream.synchronize();
          one->throw_if_aborted();
        });
      }
      rank.ranks->throw_if_aborted();
    });
  }
}

TEST_F(NcclFailure, AllCommunicatorsAreAbortedAtOnce) {
  // The one that was made first is idle, and its abort would wait for the kernel of the second.
  expect_failure(2, ExitCode::numeric, {"a bad number"}, [&](Communicator& world) {
    GpuRank rank(world, Carrier::nccl, long_timeout);
    const auto part = rank.ranks->split(0);
    connect(rank);
    const Tensor x = rank.make(100, 0), received = rank.make(100, 0);
    const int other = 1 - world.rank();
    part->wait(part->exchange(x, other, received, other, {"connecting"}));
    rank.stream.synchronize();
    if (world.rank() == 1) {
      std::this_thread::sleep_for(milliseconds(100));  // most wait by then; all end in any case
      fail(ExitCode::numeric, "a bad number");
    }
    part->wait(part->exchange({}, no_peer, received, 1, test_site));
    rank.stream.synchronize();
    part->throw_if_aborted();
  });
}

// --- Splits.

TEST_F(NcclFailure, ASplitThatFailsOnOneEndsAllRanks) {
  // The others wait in their splits, and nobody frees their parts, which they do not have yet.
  const auto words = {"of 4", "splitting the ranks of NCCL", "unhandled system error"};
  expect_failure(4, ExitCode::device, words, [](Communicator& world) {
    GpuRank rank(world, Carrier::nccl, long_timeout);
    const auto first = rank.ranks->split(0);
    connect(rank);
    if (world.rank() == 2) cuda_emulator::fail_nccl_call("ncclCommSplit", 1, ncclSystemError);
    world.barrier({});
    rank.ranks->split(world.rank() % 2);
    world.barrier({});
  });
}

TEST_F(NcclFailure, ASplitThatDoesNotEndTimesOut) {
  expect_failure(2, ExitCode::rank, {"rank 1 of 2 waited 1.25 s", "splitting the ranks"}, [](Communicator& world) {
    GpuRank rank(world, Carrier::nccl, world.rank() == 1 ? timeout : long_timeout);
    world.barrier({});
    cuda_emulator::set_nccl_polls(1 << 30);
    rank.ranks->split(0);
  });
}

TEST_F(NcclFailure, ARankThatDiesWhileOthersJoinEndsThem) {
  for (const int dying : {0, 1}) {
    expect_failure(3, ExitCode::data, {"cannot begin"}, [&](Communicator& world) {
      if (world.rank() == dying) fail(ExitCode::data, "rank {} cannot begin", dying);
      GpuRank rank(world, Carrier::nccl, long_timeout);
    });
  }
  // And one that has joined the first communicator, but not the second.
  expect_failure(2, ExitCode::data, {"no more"}, [&](Communicator& world) {
    GpuRank rank(world, Carrier::nccl, long_timeout);
    if (world.rank() == 1) fail(ExitCode::data, "no more");
    rank.ranks->split(0);
  });
}

TEST_F(NcclFailure, ARankThatDiesWhileOthersConnectToItEndsThem) {
  expect_failure(2, ExitCode::data, {"no more"}, [](Communicator& world) {
    GpuRank rank(world, Carrier::nccl, long_timeout);
    const Tensor x = rank.make(100, 0);
    if (world.rank() == 1) {
      std::this_thread::sleep_for(milliseconds(200));  // most wait by then; all end in any case
      fail(ExitCode::data, "no more");
    }
    rank.ranks->exchange(x, 1, {}, no_peer, test_site);  // waits for rank 1 to call
  });
}

TEST_F(NcclFailure, UnwindingLeavesNoMemoryInUse) {
  // A rank throws during exchanges from and to memory that is freed while it unwinds. AddressSanitizer detects later
  // reads or writes; this test checks that nothing hangs, and no thread keeps a group open.
  for (int trial = 0; trial < 12; ++trial) {
    expect_connected_failure(3, ExitCode::data, {"has bad data"}, [&](Communicator& world, GpuRank& rank) {
      if (world.rank() == trial % 3) {
        const Tensor sent = rank.make(1000, 1), received = rank.make(1000, 1);
        const auto own = rank.ranks->split(0);
        own->exchange(sent, (trial + 1) % 3, received, (trial + 1) % 3, test_site);
        if (trial % 2 == 0) std::this_thread::sleep_for(milliseconds(2 * trial));
        post_together(*own, [&] {
          own->exchange(sent, (trial + 2) % 3, {}, no_peer, test_site);
          fail(ExitCode::data, "rank {} has bad data", world.rank());
        });
      }
      const auto own = rank.ranks->split(0);
      const Tensor sent = rank.make(1000, 1), received = rank.make(1000, 1);
      if (world.rank() == (trial + 1) % 3) {
        own->wait(own->exchange(sent, trial % 3, received, trial % 3, test_site));
      }
      world.barrier({"the end"});
    });
  }
}

TEST_F(NcclFailure, AnExchangeWithoutAWaitEndsWithItsCommunicator) {
  // Its memory may then be freed, and the rank takes no further part in NCCL.
  const auto words = {"of 2 has left NCCL while exchanges were in progress"};
  expect_connected_failure(2, ExitCode::rank, words, [&](Communicator& world, GpuRank& rank) {
    const auto pair = rank.ranks->split(0);
    {
      const Tensor received = rank.make(1000, 1);
      rank.ranks->exchange({}, no_peer, received, 1 - world.rank(), test_site);
      rank.ranks.reset();
    }
    const Tensor x = rank.make(10, 0);
    pair->exchange(x, 1 - world.rank(), {}, no_peer, test_site);
  });
}

TEST_F(NcclFailure, AGroupThatIsOpenWhenTheRankGivesUpIsNotPosted) {
  const auto words = {"of 2 has left NCCL while exchanges were in progress"};
  expect_connected_failure(2, ExitCode::rank, words, [&](Communicator& world, GpuRank& rank) {
    auto pair = rank.ranks->split(0);
    const Tensor x = rank.make(10, 0), received = rank.make(10, 0);
    pair->wait(pair->exchange(x, 1 - world.rank(), received, 1 - world.rank(), {"connecting"}));
    rank.ranks->begin_group();
    rank.ranks->exchange(x, 1 - world.rank(), {}, no_peer, test_site);
    pair->exchange({}, no_peer, received, 1 - world.rank(), test_site);
    pair.reset();
    rank.ranks->end_group();
  });
}

TEST_F(NcclFailure, MisuseIsTheCallers) {
  const auto refused = [](const std::function<void(GpuRank&)>& body) {
    expect_failure(1, ExitCode::usage, {}, [&](Communicator& world) {
      GpuRank rank(world, Carrier::nccl);
      body(rank);
    });
  };
  refused([](GpuRank& rank) { rank.ranks->wait({99}); });
  refused([](GpuRank& rank) { rank.ranks->exchange(rank.make(2, 0), 1, {}, no_peer, test_site); });
  refused([](GpuRank& rank) { rank.ranks->exchange(rank.make(2, 0), 0, {}, no_peer, test_site); });
  refused([](GpuRank& rank) {
    double host = 0;
    rank.ranks->exchange(rank.make(2, 0), 0, host_view(&host, {1}), 0, test_site);
  });
  refused([](GpuRank& rank) {
    const Tensor x = rank.make(2, 0), y = rank.make(2, 0);
    const Request request = rank.ranks->exchange(x, 0, y, 0, test_site);
    rank.ranks->wait(request);
    rank.ranks->wait(request);
  });
  refused([](GpuRank& rank) {
    const Tensor x = rank.make(2, 0), y = rank.make(2, 0);
    post_together(*rank.ranks, [&] { rank.ranks->wait(rank.ranks->exchange(x, 0, y, 0, test_site)); });
  });
}

// --- If NCCL is not available.

TEST_F(NcclFailure, TwoRanksOnOneGpuAreRefused) {
  cuda_emulator::set_devices({.count = 2});
  expect_failure(3, ExitCode::usage, {"ranks 0 and 2 of 3 share one"}, [](Communicator& world) {
    ThreadPool pool(1);
    Allocator allocator(Device::cuda(world.rank() % 2));
    ComputeDevice compute(allocator, pool, nullptr);
    EXPECT_NE(nccl_refusal(world, compute.stream().device(), /*share_gpu=*/false), "");
    make_nccl_communicator(world, compute.stream(), long_timeout);
  });
}

#if !defined(RINGTRAIN_SANITIZED)  // a sanitizer needs its own files, and must be loaded before anything else

/// Ends the process like a program, after an attempt to use NCCL.
[[noreturn]] void use_nccl() {
  try {
    launch_threads({.ranks = 2, .timeout_seconds = 30}, [](Communicator& world) { GpuRank(world, Carrier::nccl); });
  } catch (const Error& error) {
    std::fputs(error.what(), stderr);
    std::_Exit(static_cast<int>(error.code()));
  }
  std::_Exit(0);
}

TEST_F(NcclFailure, AnUnfitLibraryIsNamed) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");  // in separate processes, which have not loaded NCCL yet
  const auto use_without_files = [] {
    const rlimit none{0, 0};
    ::setrlimit(RLIMIT_NOFILE, &none);
    use_nccl();
  };
  EXPECT_EXIT(use_without_files(), ::testing::ExitedWithCode(7),
              "NCCL cannot be loaded on host .* .libnccl.so.2: .*; install it, put the folder of libnccl.so.2 into");
  ::setenv("LD_PRELOAD", (binary_folder() + "/emulated_nccl/too_old/libnccl.so.2").c_str(), 1);
  EXPECT_EXIT(use_nccl(), ::testing::ExitedWithCode(7),
              "host .* has a libnccl.so.2 without ncclCommInitRankConfig: it is too old; install NCCL 2.28 or newer");
  ::unsetenv("LD_PRELOAD");
}

#endif

// --- Results that must not depend on when NCCL and the GPU do their work.

TEST_F(NcclFailure, NothingDependsOnWhenNcclIsDone) {
  for (const int polls : {1, 200}) {
    for (const auto order : {cuda_emulator::StreamOrder::lazy, cuda_emulator::StreamOrder::eager,
                             cuda_emulator::StreamOrder::others_first, cuda_emulator::StreamOrder::shuffled}) {
      cuda_emulator::set_nccl_polls(polls);
      cuda_emulator::set_stream_order(order, 5);
      launch_threads({.ranks = 3, .timeout_seconds = 30}, [](Communicator& world) {
        GpuRank rank(world, Carrier::nccl);
        const Tensor sent = rank.make(100, 0), received = rank.make(100, -1);
        for (int round = 0; round < 4; ++round) {
          fill(rank.stream, sent, 10 * round + world.rank());
          rank.ranks->wait(post_around(rank, sent, received));
          fill(rank.stream, sent, -5);  // not before it has left
          copy(rank.stream, sent, received);
          fill(rank.stream, received, -7);
          EXPECT_EQ(rank.read(sent), std::vector<float>(100, static_cast<float>(10 * round + (world.rank() + 2) % 3)));
        }
      });
    }
  }
}

// A thread that yields can continue at once; one that sleeps cannot, and is counted, however busy the machine is.
TEST_F(NcclFailure, AnActThatEndsSoonCostsNoSleep) {
  constexpr int polls = 120;
  cuda_emulator::set_nccl_polls(polls);
  launch_threads({.ranks = 2, .timeout_seconds = 30}, [](Communicator& world) {
    GpuRank rank(world, Carrier::nccl);
    connect(rank);
    const Tensor sent = rank.make(100, 0), received = rank.make(100, -1);
    const auto sleeps = [] {
      rusage used{};
      EXPECT_EQ(::getrusage(RUSAGE_THREAD, &used), 0);
      return used.ru_nvcsw;
    };
    long fewest = polls;
    for (int round = 0; round < 20; ++round) {
      world.barrier({});
      const long before = sleeps();
      const Request request = post_around(rank, sent, received);
      fewest = std::min(fewest, sleeps() - before);  // locks also make a thread wait
      rank.ranks->wait(request);
    }
    EXPECT_LT(fewest, polls / 4);
  });
}

}  // namespace
}  // namespace ringtrain::testing

#endif
