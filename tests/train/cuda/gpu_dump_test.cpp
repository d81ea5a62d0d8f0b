// train --dump-step on a GPU: tensors are copied to the host, equal those of the CPU, and do not change the run's bits.
#include "tests/support/gpu.h"
#include "tests/train/train_fixture.h"

namespace ringtrain::testing {
namespace {

class GpuDump : public OnGpu<TextTest> {
 protected:
  /// So short that the emulator finishes in seconds.
  Config small(std::vector<std::string> settings) const {
    return tiny(data, joined({"training.seq_len=13", "training.global_batch_size=2", "training.steps=1",
                              "mesh.backend=threads"},
                             settings));
  }
};

TEST_F(GpuDump, HoldsWhatTheCpuHolds) {
  const std::string cpu = run_dumped(small({"training.dtype=float32"}), "cpu", 1);
  for (const auto& [dtype, relative] : {std::pair{"float32", 1e-4}, {"bfloat16", 0.1}}) {
    SCOPED_TRACE(dtype);
    const Config on_gpu = small(
        {"training.device=cuda", "mesh.sequence=2", "mesh.layout=striped", std::string("training.dtype=") + dtype});
    const Tolerance tolerance{.relative = relative, .absolute = relative * 1e-3};
    EXPECT_GE(expect_dumps_agree(cpu, run_dumped(on_gpu, dtype, 1), tolerance).tensors.size(), 90u);
    run(on_gpu, std::string(dtype) + "-without");
    expect_same_bits(dtype, std::string(dtype) + "-without");
  }
}

}  // namespace
}  // namespace ringtrain::testing
