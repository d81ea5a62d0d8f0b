// Ranks that are threads with a GPU each do a first pass in lockstep: no operation of NCCL waits on a GPU while a rank
// of its communicator loads a kernel, which may wait for that GPU. The emulator's loading waits this way on request.
#include <chrono>
#include <future>
#include <thread>

#include "kernels/matmul.h"
#include "parallel/nccl/lockstep.h"
#include "tests/parallel/cuda/gpu_ranks.h"
#include "tests/support/error_of.h"

namespace ringtrain::testing {
namespace {

using Kind = OperationSide::Kind;
using std::chrono_literals::operator""ms;

std::future<void> begin_aside(Lockstep& lockstep, int rank, std::vector<OperationSide> sides) {
  return std::async(std::launch::async, [&lockstep, rank, sides] { lockstep.begin(rank, sides, [] {}); });
}

bool ended(const std::future<void>& one, std::chrono::milliseconds within = 50ms) {
  return one.wait_for(within) == std::future_status::ready;
}

TEST(Lockstep, AnActBeginsWhenAllHaveComeThatItJoins) {
  Lockstep lockstep(4);
  const auto first = begin_aside(lockstep, 0, {{1, Kind::sends}});
  const auto second = begin_aside(lockstep, 1, {{0, Kind::receives}, {2, Kind::sends}});
  const auto other = begin_aside(lockstep, 3, {{2, Kind::sends}});
  EXPECT_FALSE(ended(first)) << "rank 2, which the act of rank 1 joins, has not come";
  EXPECT_FALSE(ended(second));
  const auto third = begin_aside(lockstep, 2, {{1, Kind::receives}});
  for (const auto* const one : {&first, &second, &third}) EXPECT_TRUE(ended(*one, 10000ms));
  EXPECT_FALSE(ended(other)) << "rank 2 has come to another act";

  const auto end = [&](int rank) { return std::async(std::launch::async, [&, rank] { lockstep.end(rank, [] {}); }); };
  const auto end_of_first = end(0), end_of_second = end(1);
  EXPECT_FALSE(ended(end_of_first)) << "on rank 2 it is under way";
  const auto end_of_third = end(2);
  for (const auto* const one : {&end_of_first, &end_of_second, &end_of_third}) EXPECT_TRUE(ended(*one, 10000ms));
  const auto fourth = begin_aside(lockstep, 2, {{3, Kind::receives}});
  EXPECT_TRUE(ended(fourth, 10000ms));
  EXPECT_TRUE(ended(other, 10000ms));
}

TEST(Lockstep, ARankThatLooksMayLeave) {
  Lockstep lockstep(2);
  const std::string sentence = error_of(ExitCode::rank, [&] {
    lockstep.begin(0, {{1, Kind::gathers}}, [] { fail(ExitCode::rank, "nobody comes"); });
  });
  EXPECT_EQ(sentence, "nobody comes");
}

#if defined(RINGTRAIN_CUDA_EMULATED)

class NcclLockstep : public GpuRanks {
 protected:
  /// Rank 1 posts a message; then rank 0 has its first product, for which cuBLASLt loads a kernel, and posts its side.
  /// Returns whether rank 1's side reached its GPU before that.
  static bool exchange_during_a_load(bool lockstep, double timeout_seconds) {
    bool came_early = false;
    launch_threads({.ranks = 2, .timeout_seconds = 60}, [&](Communicator& world) {
      GpuRank rank(world, Carrier::nccl, timeout_seconds);
      const Tensor sent = rank.make(100, world.rank()), received = rank.make(100, -1);
      const Tensor x = rank.make(8 * 16, 1), w = rank.make(4 * 16, 1), y = rank.make(8 * 4, 0);
      connect(rank);
      rank.ranks->set_lockstep(lockstep);
      world.barrier({"after all other work"});
      if (world.rank() == 0) cuda_emulator::set_loading_waits(true);
      const std::size_t given = cuda_emulator::work_given();
      world.barrier({"before the message"});
      if (world.rank() == 0) {
        constexpr std::size_t work_of_a_post = 6;  // if it follows no other: an operation, and the events around it
        const auto end = std::chrono::steady_clock::now() + (lockstep ? 300ms : 30000ms);
        while (!came_early && std::chrono::steady_clock::now() < end) {
          came_early = cuda_emulator::work_given() >= given + work_of_a_post;
          std::this_thread::sleep_for(1ms);
        }
        linear_forward(rank.stream, y.view().prefix({8, 4}), x.view().prefix({8, 16}), w.view().prefix({4, 16}), {});
      }
      rank.ranks->wait(post_around(rank, sent, received));
      const std::vector<float> values = rank.read(received);
      rank.ranks->throw_if_aborted();
      EXPECT_EQ(values, std::vector<float>(100, static_cast<float>(1 - world.rank())));
      rank.ranks->set_lockstep(false);
    });
    return came_early;
  }
};

TEST_F(NcclLockstep, ALoadDuringAMessageEnds) {
  EXPECT_FALSE(exchange_during_a_load(/*lockstep=*/true, 20))
      << "an act came to a GPU before the other rank came to it";
}

TEST_F(NcclLockstep, WithoutItTheLoadWaitsForTheMessageAndTheMessageForTheRank) {
  expect_error_holding(ExitCode::rank, {"rank 1 of 2 waited 2 s (mesh.timeout_seconds) in test", "on its GPU"},
                       [] { exchange_during_a_load(/*lockstep=*/false, 2); });
}

TEST_F(NcclLockstep, ARankThatNeverComesIsNamed) {
  expect_error(ExitCode::rank, "rank 0 of 2 waited 1 s (mesh.timeout_seconds) for the other ranks", [] {
    launch_threads({.ranks = 2, .timeout_seconds = 60}, [](Communicator& world) {
      GpuRank rank(world, Carrier::nccl, 1);
      connect(rank);
      rank.ranks->set_lockstep(true);
      if (world.rank() == 0) around(rank);
      world.barrier({"the end"});
    });
  });
}

#endif

}  // namespace
}  // namespace ringtrain::testing
