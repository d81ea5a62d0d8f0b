// train --dump-step on a GPU: tensors come to the host, hold what the CPU's hold, and leave the run's bits alone.
#include "framework/dump/dump_comparison.h"
#include "tests/support/gpu.h"
#include "tests/train/train_fixture.h"

namespace ringtrain::testing {
namespace {

class GpuDump : public TrainTest {
 protected:
  void SetUp() override {
    TrainTest::SetUp();
    if (cuda::device_count() == 0) GTEST_SKIP() << "no GPU";
    data = write_tokens("text.h5", {});
  }
  /// So short that the emulator is done in seconds.
  Config small(std::vector<std::string> settings) const {
    settings.insert(settings.begin(), {"training.seq_len=13", "training.global_batch_size=2", "training.steps=1",
                                       "mesh.backend=threads"});
    return tiny(data, settings);
  }
  std::string run_dumped(const Config& config, const std::string& name) const {
    TrainOptions options;
    options.config = config;
    options.output = at(name);
    options.dump = {.folder = at(name) + ".dump", .step = 1};
    const auto log = [](const std::string&) {};
    EXPECT_EQ(train(prepare_run(options, log), log), ExitCode::done);
    return options.dump.folder;
  }
  std::string data;
};

TEST_F(GpuDump, HoldsWhatTheCpuHolds) {
  const DumpReader cpu(run_dumped(small({"training.dtype=float32"}), "cpu"));
  const std::vector<std::string> on_gpu{"training.device=cuda", "mesh.sequence=2", "mesh.layout=striped"};
  for (const auto& [dtype, relative] : {std::pair{"float32", 1e-4}, {"bfloat16", 0.1}}) {
    SCOPED_TRACE(dtype);
    auto settings = on_gpu;
    settings.push_back(std::string("training.dtype=") + dtype);
    const DumpReader gpu(run_dumped(small(settings), dtype));
    const Tolerance tolerance{.relative = relative, .absolute = relative * 1e-3};
    const DumpComparison comparison = compare_dumps(cpu, gpu, tolerance);
    EXPECT_TRUE(comparison.agree()) << report(comparison, cpu, gpu, tolerance);
    EXPECT_GE(comparison.tensors.size(), 90u);
    run(small(settings), std::string(dtype) + "-without");
    EXPECT_EQ(losses(dtype), losses(std::string(dtype) + "-without"));
    EXPECT_EQ(state(checkpoint(dtype, 1)), state(checkpoint(std::string(dtype) + "-without", 1)));
  }
}

}  // namespace
}  // namespace ringtrain::testing
