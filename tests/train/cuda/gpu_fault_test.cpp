// The response to a GPU that does not work: one message and code 7, or 2 if the plan shows it before the start. Only
// the emulator can provide such GPUs.
#include "tests/support/gpu.h"
#include "tests/train/train_fixture.h"

#if defined(RINGTRAIN_CUDA_EMULATED)

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
};

TEST_F(GpuFault, ADeviceThatDoesNotServeIsNamed) {
  struct Fault {
    cuda_emulator::Devices devices = {};
    const char* call = nullptr;  // the call that fails, at these times
    int first = 1, last = 1;
    cudaError_t error = cudaSuccess;
    ExitCode code = ExitCode::device;
    std::vector<std::string> parts = {};
  };
  for (const Fault& fault : std::vector<Fault>{
           {.devices = {.count = 0}, .parts = {"the number of GPUs is 0"}},
           {.devices = {.compute_capability = 75}, .parts = {"compute capability 7.5, but 8.0 or newer is needed"}},
           {.call = "cudaGetDeviceCount",
           .last = 8,
           .error = cudaErrorSystemNotReady,
           .parts = {"cudaErrorSystemNotReady", "fabric manager"}},
           {.call = "cudaSetDevice",
           .last = 4,
           .error = cudaErrorDevicesUnavailable,
           .parts = {"another process has exclusive use of the GPU"}},
           {.call = "cudaEventSynchronize",
           .first = 20,
           .last = 20,
           .error = cudaErrorIllegalAddress,
           .parts = {"cudaErrorIllegalAddress", "compute-sanitizer"}},
           {.devices = {.memory_bytes = std::size_t{280} << 20},
           .code = ExitCode::usage,
           .parts = {"the plan does not fit", "GPU 0", "workspace"}},
           {.call = "cudaMalloc",
           .first = 3,
           .last = 3,
           .error = cudaErrorMemoryAllocation,
           .code = ExitCode::usage,
           .parts = {"cannot allocate", "cuda:0"}}}) {
    SCOPED_TRACE(fault.parts.front());
    cuda_emulator::reset();
    cuda_emulator::set_devices(fault.devices);
    for (int nth = fault.first; fault.call && nth <= fault.last; ++nth) {
      cuda_emulator::fail_call(fault.call, nth, fault.error);
    }
    expect_error_holding(fault.code, fault.parts, [&] { run(config(), fault.parts.front()); });
    if (fault.first < 20) {
      EXPECT_TRUE(metrics(fault.parts.front()).empty()) << "before the first step";
    }
  }
}

TEST_F(GpuFault, HostMemoryThatTheDriverDoesNotPin) {
  for (const cudaError_t error : {cudaErrorMemoryAllocation, cudaErrorOperatingSystem}) {
    cuda_emulator::fail_call("cudaHostAlloc", 2, error);
    expect_error_holding(ExitCode::device, {"bytes of pinned host memory", "offload less (training.offload)"}, [&] {
      run(config({"training.offload=activations"}), fmt::format("run {}", static_cast<int>(error)));
    });
    cuda_emulator::reset();
  }
}

TEST_F(GpuFault, RanksThatShareACardShareItsMemory) {
  cuda_emulator::set_devices({.memory_bytes = std::size_t{340} << 20});
  EXPECT_EQ(run(config(), "one").code, ExitCode::done);
  expect_error_holding(ExitCode::usage, {"for 4 ranks"}, [&] {
    run(config({"mesh.sequence=4", "mesh.backend=threads"}), "run");
  });
}

TEST_F(GpuFault, ACardThatFailsEndsAllRanks) {
  for (const char* const mesh : {"mesh.sequence=1", "mesh.sequence=2"}) {
    SCOPED_TRACE(mesh);
    cuda_emulator::fail_call("cudaStreamSynchronize", 25, cudaErrorECCUncorrectable);
    expect_error_holding(ExitCode::device, {"cudaErrorECCUncorrectable"}, [&] {
      run(config({mesh, "mesh.backend=threads", "training.steps=30"}), mesh);
    });
    cuda_emulator::reset();
  }
}

}  // namespace
}  // namespace ringtrain::testing

#endif
