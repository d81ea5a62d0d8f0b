// What a GPU that does not serve is answered with: one sentence and code 7, or 2 where the plan shows it before the
// start. Only the emulator has such GPUs at hand.
#include "tests/support/gpu.h"
#include "tests/train/train_fixture.h"

#if defined(RINGTRAIN_CUDA_EMULATED)

#include "cuda_emulator.h"

namespace ringtrain::testing {
namespace {

class GpuFault : public TrainTest {
 protected:
  void SetUp() override {
    TrainTest::SetUp();
    data = write_tokens("text.h5", {});
  }
  void TearDown() override {
    cuda_emulator::reset();
    cuda_emulator::set_devices({});
    TrainTest::TearDown();
  }
  Config config(std::vector<std::string> settings = {}) const {
    settings.insert(settings.begin(), {"training.device=cuda", "training.dtype=bfloat16", "training.seq_len=13",
                                       "training.global_batch_size=2", "training.steps=3", "mesh.timeout_seconds=20"});
    return tiny(data, settings);
  }
  std::string refusal(ExitCode code, const Config& of) {
    return error_of(code, [&] { run(of, "run"); });
  }
  static bool holds(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }
  std::string data;
};

TEST_F(GpuFault, NoGpu) {
  cuda_emulator::set_devices({.count = 0});
  EXPECT_TRUE(holds(refusal(ExitCode::device, config()), "this machine shows 0"));
}

TEST_F(GpuFault, AnOldArchitecture) {
  cuda_emulator::set_devices({.compute_capability = 75});
  const std::string sentence = refusal(ExitCode::device, config());
  EXPECT_TRUE(holds(sentence, "compute capability 7.5, but 8.0 or newer is needed")) << sentence;
}

TEST_F(GpuFault, ADriverThatCannotSayIsNotAMachineWithoutGpus) {
  for (int call = 1; call <= 8; ++call) cuda_emulator::fail_call("cudaGetDeviceCount", call, cudaErrorSystemNotReady);
  const std::string sentence = refusal(ExitCode::device, config());
  EXPECT_TRUE(holds(sentence, "cudaErrorSystemNotReady")) << sentence;
  EXPECT_TRUE(holds(sentence, "fabric manager")) << sentence;
}

TEST_F(GpuFault, ACardThatAnotherProcessHasForItself) {
  for (int call = 1; call <= 4; ++call) cuda_emulator::fail_call("cudaSetDevice", call, cudaErrorDevicesUnavailable);
  const std::string sentence = refusal(ExitCode::device, config());
  EXPECT_TRUE(holds(sentence, "another process has the GPU for itself")) << sentence;
  EXPECT_TRUE(metrics("run").empty());
}

TEST_F(GpuFault, HostMemoryThatTheDriverDoesNotPin) {
  for (const cudaError_t error : {cudaErrorMemoryAllocation, cudaErrorOperatingSystem}) {
    cuda_emulator::fail_call("cudaHostAlloc", 2, error);
    const std::string sentence = error_of(ExitCode::device, [&] {
      run(config({"training.offload=activations"}), fmt::format("run {}", static_cast<int>(error)));
    });
    EXPECT_TRUE(holds(sentence, "bytes of pinned host memory")) << sentence;
    EXPECT_TRUE(holds(sentence, "set training.offload to less")) << sentence;
    cuda_emulator::reset();
  }
}

TEST_F(GpuFault, AnAccessToNoMemorySaysWhatToDo) {
  cuda_emulator::fail_call("cudaStreamSynchronize", 20, cudaErrorIllegalAddress);
  const std::string sentence = refusal(ExitCode::device, config());
  EXPECT_TRUE(holds(sentence, "cudaErrorIllegalAddress")) << sentence;
  EXPECT_TRUE(holds(sentence, "compute-sanitizer")) << sentence;
}

TEST_F(GpuFault, TooLittleMemoryIsForetold) {
  cuda_emulator::set_devices({.memory_bytes = std::size_t{280} << 20});
  const std::string sentence = refusal(ExitCode::usage, config());
  EXPECT_TRUE(holds(sentence, "the plan does not fit")) << sentence;
  EXPECT_TRUE(holds(sentence, "GPU 0")) << sentence;
  EXPECT_TRUE(holds(sentence, "workspace")) << sentence;
  EXPECT_TRUE(metrics("run").empty());
}

TEST_F(GpuFault, RanksThatShareACardShareItsMemory) {
  cuda_emulator::set_devices({.memory_bytes = std::size_t{340} << 20});
  EXPECT_EQ(run(config(), "one").code, ExitCode::done);
  const std::string sentence = refusal(ExitCode::usage, config({"mesh.sequence=4", "mesh.backend=threads"}));
  EXPECT_TRUE(holds(sentence, "4 ranks need")) << sentence;
}

TEST_F(GpuFault, MemoryThatOthersTookMeanwhile) {
  cuda_emulator::fail_call("cudaMalloc", 3, cudaErrorMemoryAllocation);
  const std::string sentence = refusal(ExitCode::usage, config());
  EXPECT_TRUE(holds(sentence, "cannot allocate")) << sentence;
  EXPECT_TRUE(holds(sentence, "cuda:0")) << sentence;
}

TEST_F(GpuFault, ACardThatFailsEndsAllRanks) {
  for (const char* const mesh : {"mesh.sequence=1", "mesh.sequence=2"}) {
    SCOPED_TRACE(mesh);
    cuda_emulator::fail_call("cudaStreamSynchronize", 40, cudaErrorECCUncorrectable);
    const std::string sentence = error_of(ExitCode::device, [&] {
      run(config({mesh, "mesh.backend=threads", "training.steps=30"}), mesh);
    });
    EXPECT_TRUE(holds(sentence, "cudaErrorECCUncorrectable")) << sentence;
    cuda_emulator::reset();
  }
}

}  // namespace
}  // namespace ringtrain::testing

#endif
