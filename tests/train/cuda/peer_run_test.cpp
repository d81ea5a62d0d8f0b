// Whole runs of ranks that are threads, with a GPU each: if the GPUs can access each other, copy engines transfer the
// ring's messages; otherwise NCCL does. In both cases, a run has the bits of the same ranks on one card.
#include "tests/parallel/cuda/gpu_ranks.h"
#include "tests/train/train_fixture.h"

#if defined(RINGTRAIN_CUDA_EMULATED)

namespace ringtrain::testing {
namespace {

class PeerRun : public TextTest {
 protected:
  void TearDown() override {
    expect_nccl_left_in_order();
    TrainTest::TearDown();
  }
  /// Runs on this many cards. Returns how many communicators NCCL created for it.
  int run_on(int cards, bool peer_access, const std::string& mesh, const std::string& name,
             bool loading_waits = false) {
    cuda_emulator::set_devices({.count = cards, .peer_access = peer_access});
    cuda_emulator::set_loading_waits(loading_waits);
    const auto x = mesh.find('x');
    run(tiny(data, {"training.device=cuda", "training.dtype=bfloat16", "training.seq_len=24",
                    "training.global_batch_size=2", "training.steps=2", "mesh.timeout_seconds=60",
                    "mesh.data=" + mesh.substr(0, x), "mesh.sequence=" + mesh.substr(x + 1)}),
        name);
    return cuda_emulator::nccl_communicators_made();
  }
};

TEST_F(PeerRun, HasTheBitsOfOneCardWithAndWithoutPeerAccess) {
  for (const auto& [cards, mesh] : {std::pair{2, "1x2"}, {4, "2x2"}, {8, "1x8"}}) {
    SCOPED_TRACE(mesh);
    const std::string name = mesh;
    EXPECT_EQ(run_on(1, true, mesh, name + " one card"), 0);
    EXPECT_EQ(cuda_emulator::peer_accesses(), 0);
    EXPECT_EQ(run_on(cards, true, mesh, name + " peers"), 0) << "copy engines carry it";
    EXPECT_EQ(cuda_emulator::peer_accesses(), cards * (cards - 1)) << "each reaches all others";
    EXPECT_GT(run_on(cards, false, mesh, name + " apart"), 0) << "NCCL carries it";
    EXPECT_EQ(cuda_emulator::peer_accesses(), 0);
    for (const char* const other : {" peers", " apart"}) expect_same_bits(name + other, name + " one card");
  }
}

// A copy between cards is posted when both sides have arrived, so no card waits for a rank that loads a kernel.
TEST_F(PeerRun, RunsWhereLoadingWaitsForEveryGpu) {
  EXPECT_EQ(run_on(3, true, "1x3", "waits", /*loading_waits=*/true), 0);
  run_on(1, true, "1x3", "one card");
  EXPECT_EQ(losses("waits"), losses("one card"));
}

}  // namespace
}  // namespace ringtrain::testing

#endif
