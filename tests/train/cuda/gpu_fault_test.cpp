// What a GPU that does not serve is answered with: one sentence and code 7, or 2 where the plan shows it before the
// start. Only the emulator has such GPUs at hand.
#include "tests/support/gpu.h"
#include "tests/train/train_fixture.h"

#if defined(RINGTRAIN_CUDA_EMULATED)

#include "cuda_emulator.h"

namespace ringtrain::testing {
namespace {

class GpuFault : public TextTest {
 protected:
  void TearDown() override {
    cuda_emulator::reset();
    cuda_emulator::set_devices({});
    TrainTest::TearDown();
  }
  Config config(std::vector<std::string> settings = {}) const {
    return tiny(data, joined({"training.device=cuda", "training.dtype=bfloat16", "training.seq_len=13",
                              "training.global_batch_size=2", "training.steps=3", "mesh.timeout_seconds=20"},
                             settings));
  }
  std::string refusal(ExitCode code, const Config& of) {
    return error_of(code, [&] { run(of, "run"); });
  }
};

TEST_F(GpuFault, NoGpu) {
  cuda_emulator::set_devices({.count = 0});
  EXPECT_TRUE(holds(refusal(ExitCode::device, config()), "this machine shows 0"));
}

TEST_F(GpuFault, AnOldArchitecture) {
  cuda_emulator::set_devices({.compute_capability = 75});
  EXPECT_TRUE(holds(refusal(ExitCode::device, config()), "compute capability 7.5, but 8.0 or newer is needed"));
}

TEST_F(GpuFault, ADriverThatCannotSayIsNotAMachineWithoutGpus) {
  for (int call = 1; call <= 8; ++call) cuda_emulator::fail_call("cudaGetDeviceCount", call, cudaErrorSystemNotReady);
  EXPECT_TRUE(holds_all(refusal(ExitCode::device, config()), {"cudaErrorSystemNotReady", "fabric manager"}));
}

TEST_F(GpuFault, ACardThatAnotherProcessHasForItself) {
  for (int call = 1; call <= 4; ++call) cuda_emulator::fail_call("cudaSetDevice", call, cudaErrorDevicesUnavailable);
  EXPECT_TRUE(holds(refusal(ExitCode::device, config()), "another process has the GPU for itself"));
  EXPECT_TRUE(metrics("run").empty());
}

TEST_F(GpuFault, HostMemoryThatTheDriverDoesNotPin) {
  for (const cudaError_t error : {cudaErrorMemoryAllocation, cudaErrorOperatingSystem}) {
    cuda_emulator::fail_call("cudaHostAlloc", 2, error);
    expect_error_holding(ExitCode::device, {"bytes of pinned host memory", "set training.offload to less"}, [&] {
      run(config({"training.offload=activations"}), fmt::format("run {}", static_cast<int>(error)));
    });
    cuda_emulator::reset();
  }
}

TEST_F(GpuFault, AnAccessToNoMemorySaysWhatToDo) {
  cuda_emulator::fail_call("cudaStreamSynchronize", 20, cudaErrorIllegalAddress);
  EXPECT_TRUE(holds_all(refusal(ExitCode::device, config()), {"cudaErrorIllegalAddress", "compute-sanitizer"}));
}

TEST_F(GpuFault, TooLittleMemoryIsForetold) {
  cuda_emulator::set_devices({.memory_bytes = std::size_t{280} << 20});
  EXPECT_TRUE(holds_all(refusal(ExitCode::usage, config()), {"the plan does not fit", "GPU 0", "workspace"}));
  EXPECT_TRUE(metrics("run").empty());
}

TEST_F(GpuFault, RanksThatShareACardShareItsMemory) {
  cuda_emulator::set_devices({.memory_bytes = std::size_t{340} << 20});
  EXPECT_EQ(run(config(), "one").code, ExitCode::done);
  EXPECT_TRUE(holds(refusal(ExitCode::usage, config({"mesh.sequence=4", "mesh.backend=threads"})), "4 ranks need"));
}

TEST_F(GpuFault, MemoryThatOthersTookMeanwhile) {
  cuda_emulator::fail_call("cudaMalloc", 3, cudaErrorMemoryAllocation);
  EXPECT_TRUE(holds_all(refusal(ExitCode::usage, config()), {"cannot allocate", "cuda:0"}));
}

TEST_F(GpuFault, ACardThatFailsEndsAllRanks) {
  for (const char* const mesh : {"mesh.sequence=1", "mesh.sequence=2"}) {
    SCOPED_TRACE(mesh);
    cuda_emulator::fail_call("cudaStreamSynchronize", 40, cudaErrorECCUncorrectable);
    expect_error_holding(ExitCode::device, {"cudaErrorECCUncorrectable"}, [&] {
      run(config({mesh, "mesh.backend=threads", "training.steps=30"}), mesh);
    });
    cuda_emulator::reset();
  }
}

}  // namespace
}  // namespace ringtrain::testing

#endif
