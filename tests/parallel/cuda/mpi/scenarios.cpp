#include "tests/parallel/cuda/mpi/scenarios.h"

#if defined(RINGTRAIN_CUDA_EMULATED)

#include <chrono>
#include <csignal>
#include <thread>

#include "parallel/collectives.h"
#include "tests/parallel/cuda/gpu_ranks.h"

namespace ringtrain::testing {
namespace {

constexpr double timeout = 1.25, long_timeout = 60;
constexpr int culprit = 1;

void connect_all(GpuRank& rank) {
  connect(rank);
  rank.ranks->barrier({"connected"});
}

/// A body whose ranks are joined and connected. The culprit then does something else; the others wait for it in NCCL,
/// and then in the communicator below.
RankBody once_connected(double seconds, const std::function<void(GpuRank&)>& act) {
  return [=](Communicator& world) {
    GpuRank rank(world, Carrier::nccl, seconds);
    const auto part = rank.ranks->split(0);
    connect_all(rank);
    if (world.rank() == culprit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));  // most wait by then; all end in any case
      act(rank);
    }
    around(rank);
    rank.ranks->barrier({"the end"});
  };
}

/// A body whose culprit does something before it joins.
RankBody before_joining(const std::function<void()>& act) {
  return [=](Communicator& world) {
    if (world.rank() == culprit) act();
    GpuRank rank(world, Carrier::nccl, long_timeout);
  };
}

void die() {
  ::raise(SIGKILL);
}

/// A body whose culprit does what joining does on the host, but then something else instead of joining, while the
/// others wait that long for it.
RankBody instead_of_joining(double seconds, const RankBody& act) {
  return [=](Communicator& world) {
    if (world.rank() == culprit) {
      all_gather(world, std::vector<std::int64_t>{7, 7, 7}, {"gather of GPUs"});
      const auto host = world.split(0);
      std::vector<std::uint8_t> id(NCCL_UNIQUE_ID_BYTES);
      broadcast(*host, host_view(id.data(), {NCCL_UNIQUE_ID_BYTES}), 0, {"sending NCCL's unique id to all ranks"});
      act(world);
    }
    GpuRank rank(world, Carrier::nccl, seconds);
  };
}

void die_while_another_connects(Communicator& world) {
  GpuRank rank(world, Carrier::nccl, long_timeout);
  const Tensor x = rank.make(100, 0);
  world.barrier({"joined"});
  if (world.rank() == culprit) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // most wait by then; all end in any case
    die();
  }
  if (world.rank() == 0) rank.ranks->exchange(x, culprit, {}, no_peer, test_site);
  world.barrier({"the end"});
}

void share_a_gpu(Communicator& world) {
  ThreadPool pool(1);
  Allocator allocator(Device::cuda(0));
  ComputeDevice compute(allocator, pool, nullptr);
  make_nccl_communicator(world, compute.stream(), long_timeout);
}

void end_in_order(Communicator& world) {
  {
    GpuRank rank(world, Carrier::nccl, long_timeout);
    const auto part = rank.ranks->split(world.rank() % 2);
    connect_all(rank);
    around(rank);
  }
  if (cuda_emulator::nccl_communicators() > 0 || !cuda_emulator::nccl_misuses().empty()) {
    fail(ExitCode::internal, "rank {} has not left NCCL in order", world.rank());
  }
}

}  // namespace

const Scenarios& nccl_scenarios() {
  static const Scenarios all{
      {"order", end_in_order},
      {"kill", once_connected(long_timeout, [](GpuRank&) { die(); })},
      {"kill-joining", instead_of_joining(long_timeout, [](Communicator&) { die(); })},
      {"kill-connecting", die_while_another_connects},
      {"throw", once_connected(long_timeout, [](GpuRank&) { fail(ExitCode::numeric, "a bad number"); })},
      {"throw-joining", before_joining([] { fail(ExitCode::data, "bad data"); })},
      {"hang", once_connected(timeout, [](GpuRank&) { cuda_emulator::hang_nccl_group(culprit, 1); })},
      {"stay-away", instead_of_joining(timeout, [](Communicator& world) { world.barrier({"the end"}); })},
      {"nccl-error",
       once_connected(long_timeout,
                      [](GpuRank&) { cuda_emulator::break_nccl_group(culprit, 1, ncclUnhandledCudaError); })},
      {"gpu-error",
       once_connected(long_timeout, [](GpuRank&) { cuda_emulator::fail_device(culprit, cudaErrorECCUncorrectable); })},
      {"sizes", once_connected(long_timeout, [](GpuRank& rank) { around(rank, 120); })},
      {"share", share_a_gpu}};
  return all;
}

}  // namespace ringtrain::testing

#endif
