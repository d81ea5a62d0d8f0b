// Attention over a ring of ranks with a GPU, forward and backward: NCCL's messages give the bits of the threads' own,
// in every layout, with and without documents, pass after pass; and both equal the reference's attention. In
// gpu_mpi_tests, the ranks that NCCL connects are processes.
#include "parallel/nccl/thread_blocks.h"
#include "tests/parallel/cuda/gpu_ranks.h"
#include "tests/parallel/ring_case.h"

namespace ringtrain::testing {
namespace {

class GpuRing : public GpuRanks {
 protected:
  static Result run(const Problem& p, Layout layout, int N, Carrier carrier) {
    Result result = Result::of(p);
    const LaunchOptions options{.ranks = N, .timeout_seconds = 60};
    const auto body = [&](Communicator& world) {
      GpuRank rank(world, carrier);
      EXPECT_EQ(rank.ranks->multiprocessors(), carrier == Carrier::nccl ? nccl_thread_blocks : 0);
      const RunOptions two_passes{.N = N, .layout = layout, .passes = 2};
      RankRun<float, float>(p, two_passes, rank.allocator, rank.stream, *rank.ranks, result);
    };
    if (carrier == Carrier::threads) {
      launch_threads(options, body);
    } else {
      run_ranks(options, body);
      result.unite_ranks();
    }
    return result;
  }
};

TEST_F(GpuRing, ByNcclIsThatByThreadsToTheBit) {
  std::vector<Problem> problems{
      {.S = 24, .H = 2, .G = 1, .D = 8, .mask = {.causal = true}},
      {.S = 23, .B = 2, .H = 2, .G = 2, .D = 4, .mask = {.causal = false, .window = 7}, .with_documents = true}};
  unsigned seed = 1;
  for (Problem& p : problems) {
    make_inputs(p, seed++);
    const Result reference = reference_result(p);
    for (const auto& [N, layout] : {std::pair{2, Layout::contiguous}, {3, Layout::striped}, {4, Layout::zigzag}}) {
      if (!has_gpus_for(N, Carrier::nccl)) GTEST_SKIP() << "too few GPUs";
      SCOPED_TRACE(fmt::format("{}, {} {}", p.name(), name_of(layout), N));
      const Result nccl = run(p, layout, N, Carrier::nccl);
      EXPECT_TRUE(nccl == run(p, layout, N, Carrier::threads));
      using Field = std::vector<double> Result::*;
      for (const Field field : {&Result::out, &Result::lse, &Result::dq, &Result::dk, &Result::dv}) {
        EXPECT_LE(worst_difference(nccl.*field, reference.*field), 3e-4);
      }
    }
  }
}

}  // namespace
}  // namespace ringtrain::testing
