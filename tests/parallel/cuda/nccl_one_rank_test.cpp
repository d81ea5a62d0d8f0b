// Everything that NCCL does for a single rank, the maximum on a machine with one GPU: the library loads, its states
// advance without blocking, a rank sends to itself, splits, sums, gathers, leaves in an orderly way, and aborts.
#include "tests/parallel/cuda/gpu_ranks.h"

namespace ringtrain::testing {
namespace {

class NcclOneRank : public GpuRanks {
 protected:
  /// Runs body(rank), or skips the test if NCCL is not available.
  template <class Body>
  static void run(const Body& body) {
    launch_threads({.ranks = 1, .timeout_seconds = 30}, [&](Communicator& world) {
      std::unique_ptr<GpuRank> rank;
      try {
        rank = std::make_unique<GpuRank>(world, Carrier::nccl, 30);
      } catch (const Error& error) {
        const std::string words = error.what();
        if (words.find("cannot be loaded") == std::string::npos && error.code() != ExitCode::usage) throw;
        GTEST_SKIP() << words;
      }
      body(*rank);
    });
  }
  static std::vector<float> numbers(std::int64_t n, float value) {
    return std::vector<float>(static_cast<std::size_t>(n), value);
  }
};

TEST_F(NcclOneRank, SendsToItselfSumsGathersAndSplits) {
  run([](GpuRank& rank) {
    const Tensor sent = rank.make(1000, 3), received = rank.make(1000, -1);
    rank.ranks->wait(rank.ranks->exchange(sent, 0, received, 0, test_site));
    EXPECT_EQ(rank.read(received), numbers(1000, 3));
    rank.ranks->wait(rank.ranks->reduce_scatter(sent.view().flat(), {"sum"}));
    rank.ranks->wait(rank.ranks->all_gather(sent.view().flat(), {"gather"}));
    EXPECT_EQ(rank.read(sent), numbers(1000, 3));
    const std::unique_ptr<Communicator> part = rank.ranks->split(0);
    fill(rank.stream, sent, 5);
    part->wait(part->exchange(sent, 0, received, 0, test_site));
    EXPECT_EQ(rank.read(received), numbers(1000, 5));
  });
}

TEST_F(NcclOneRank, AnErrorEndsIt) {
  try {
    run([](GpuRank& rank) {
      const Tensor x = rank.make(1000, 3), y = rank.make(1000, -1);
      rank.ranks->wait(rank.ranks->exchange(x, 0, y, 0, test_site));
      throw Error(ExitCode::numeric, "the loss is not a number");
    });
    if (!IsSkipped()) ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::numeric) << error.what();
  }
}

}  // namespace
}  // namespace ringtrain::testing
