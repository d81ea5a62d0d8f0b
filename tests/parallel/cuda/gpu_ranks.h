// Ranks that are threads with a GPU: one shared GPU, whose memory the threads' own communicator transfers, or with NCCL
// one each. Ranks that are processes share GPUs if there are too few. The emulator provides GPUs and NCCL, and each
// test then also checks that NCCL's rules were followed.
#pragma once

#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "framework/allocator.h"
#include "framework/cuda/context.h"
#include "framework/system/compute_device.h"
#include "kernels/elementwise.h"
#include "parallel/collectives.h"
#include "parallel/launch/launch.h"
#include "parallel/nccl/nccl_communicator.h"
#include "tests/parallel/run_ranks.h"
#include "tests/support/gpu.h"

#if defined(RINGTRAIN_CUDA_EMULATED)
#include "cuda_emulator_nccl.h"
#endif

namespace ringtrain::testing {

/// What transfers GPU memory between ranks.
enum class Carrier { threads, nccl };

/// Whether the ranks of world are processes that must share GPUs: those of gpu_mpi_tests on a machine with fewer.
inline bool share_gpus(const Communicator& world) {
  return process_world() != nullptr && cuda::device_count() < world.size();
}

struct GpuRank {
  GpuRank(Communicator& world, Carrier carrier, double timeout_seconds = 30)
      : pool(1),
        allocator(Device::cuda(carrier == Carrier::nccl ? world.rank() % cuda::device_count() : 0)),
        compute(allocator, pool, nullptr),
        stream(compute.stream()),
        ranks(carrier == Carrier::nccl ? make_nccl_communicator(world, stream, timeout_seconds, share_gpus(world))
                                       : world.split(0)) {
    ranks->set_stream(stream);
  }
  /// Leaves in an orderly way, unless an error is being handled.
  ~GpuRank() noexcept(false) {
    if (ranks && std::uncaught_exceptions() == 0) ranks->close();
  }
  Tensor make(std::int64_t n, double value) {
    Tensor x = allocator.make(Tag::workspace, "x", DType::float32, {n});
    fill(stream, x, value);
    return x;
  }
  std::vector<float> read(const TensorView& x) {
    std::vector<float> values(x.numel());
    copy(stream, host_view(values.data(), x.shape), x);
    return values;
  }
  ThreadPool pool;
  Allocator allocator;
  ComputeDevice compute;
  Stream& stream;
  std::unique_ptr<Communicator> ranks;  // destroyed first
};

/// Connects all pairs of ranks, as their first messages would.
inline void connect(GpuRank& rank) {
  const Tensor x = rank.make(rank.ranks->size(), 0);
  all_gather_slices(*rank.ranks, x, {"connecting"});
  rank.stream.synchronize();
}

/// One exchange around the ring of all ranks.
inline constexpr CallSite test_site{.operation = "test message", .layer = 3, .hop = 2};
inline Request post_around(GpuRank& rank, const TensorView& sent, const TensorView& received) {
  const int n = rank.ranks->size(), r = rank.ranks->rank();
  return rank.ranks->exchange(sent, (r + 1) % n, received, (r + n - 1) % n, test_site);
}

/// The same, but done when it returns.
inline void around(GpuRank& rank, std::int64_t received_elements = 100) {
  const Tensor sent = rank.make(100, rank.ranks->rank()), received = rank.make(received_elements, -1);
  rank.ranks->wait(post_around(rank, sent, received));
  rank.stream.synchronize();
}

/// From now on, the emulator has this many GPUs, unless the environment specifies the number.
inline void show_gpus([[maybe_unused]] int count) {
#if defined(RINGTRAIN_CUDA_EMULATED)
  if (std::getenv("CUDA_EMULATOR_DEVICES") == nullptr) cuda_emulator::set_devices({.count = count});
#endif
}

/// Expects that NCCL's rules were followed and that nothing remains; the emulator is then in its initial state.
inline void expect_nccl_left_in_order() {
#if defined(RINGTRAIN_CUDA_EMULATED)
  EXPECT_EQ(cuda_emulator::nccl_misuses(), std::vector<std::string>{});
  EXPECT_EQ(cuda_emulator::nccl_communicators(), 0);
  cuda_emulator::reset();
#endif
}

class GpuRanks : public GpuTest {
 protected:
  static constexpr int max_ranks = 4;

  void SetUp() override {
    show_gpus(max_ranks);
    GpuTest::SetUp();
  }
  void TearDown() override { expect_nccl_left_in_order(); }
  /// Returns whether this machine has GPUs for this many ranks; processes may share them.
  static bool has_gpus_for(int ranks, Carrier carrier) {
    return carrier == Carrier::threads || process_world() != nullptr || cuda::device_count() >= ranks;
  }
};

inline std::string name_of(Carrier carrier) {
  return carrier == Carrier::nccl ? "nccl" : "threads";
}

}  // namespace ringtrain::testing
