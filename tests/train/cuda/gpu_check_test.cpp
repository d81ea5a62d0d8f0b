// `check` on a GPU: results in float32 and in bfloat16 are within bounds that only rounding explains, and so are the
// differences between a GPU and a CPU, which round at the same points.
#include <map>

#include "tests/support/gpu.h"
#include "tests/train/check/check_fixture.h"

namespace ringtrain::testing {
namespace {

class GpuCheck : public OnGpu<CheckTest> {
 protected:
  /// So short that the emulator finishes in seconds.
  Config small(std::vector<std::string> settings) const {
    return tiny(data, joined({"training.seq_len=13", "training.global_batch_size=2", "mesh.sequence=2",
                              "mesh.backend=threads", "training.device=cuda"},
                             settings));
  }
  static std::vector<std::string> model(const std::string& architecture) {
    std::vector<std::string> settings{"model.architecture=" + architecture};
    if (architecture == "gpt2") {
      settings.insert(settings.end(), {"model.num_key_value_heads=4", "model.max_position_embeddings=13"});
    }
    return settings;
  }
  /// Checks a run whose dump is kept under a name.
  CheckReport check_and_keep(const Config& config, const std::string& name) const {
    CheckOptions options = options_of(config);
    options.train.dump.folder = at(name);
    options.keep = true;
    return check_run(options, quiet);
  }
};

TEST_F(GpuCheck, ARunIsRightInBothTypes) {
  for (const std::string dtype : {"float32", "bfloat16"}) {
    for (const std::string architecture : {"llama", "gpt2", "qwen3"}) {
      SCOPED_TRACE(dtype + " " + architecture);
      std::vector<std::string> settings = model(architecture);
      settings.push_back("training.dtype=" + dtype);
      const CheckReport report = check(small(settings));
      EXPECT_EQ(wrong(report), "");
      EXPECT_GT(report.tensors.size(), 100U);
    }
  }
}

TEST_F(GpuCheck, ACpuAndAGpuAgreeInBFloat16WithinTheBoundOfEither) {
  for (const std::string architecture : {"llama", "gpt2", "gemma2"}) {
    SCOPED_TRACE(architecture);
    std::vector<std::string> settings = model(architecture);
    settings.emplace_back("training.dtype=bfloat16");
    const CheckReport on_gpu = check_and_keep(small(settings), architecture + ".gpu");
    settings.emplace_back("training.device=cpu");
    const CheckReport on_cpu = check_and_keep(small(settings), architecture + ".cpu");
    EXPECT_EQ(wrong(on_cpu), "");
    std::map<std::string, double> bounds;
    for (const CheckedTensor& tensor : on_cpu.tensors) {
      // Bounds of weights after the step apply to a run's own gradients: Adam's first step has the size of its rate.
      const bool after_the_step = tensor.name.starts_with("updated.") || tensor.name.starts_with("gathered.");
      if (!after_the_step) bounds[tensor.name] = tensor.bound;
    }
    const DumpReader cpu(at(architecture + ".cpu")), gpu(at(architecture + ".gpu"));
    const DumpComparison comparison = compare_dumps(cpu, gpu, {});
    EXPECT_TRUE(comparison.unlike.empty());
    std::size_t compared = 0, differing = 0;
    double closest = 0;
    for (const ComparedTensor& tensor : comparison.tensors) {
      if (!bounds.contains(tensor.name)) continue;
      ++compared;
      differing += tensor.values.greatest > 0 ? 1 : 0;
      const double bound = bounds[tensor.name];
      EXPECT_LE(tensor.values.greatest, bound) << tensor.name << " at " << tensor.location;
      if (bound > 0) closest = std::max(closest, tensor.values.greatest / bound);
    }
    EXPECT_GE(compared, 75U);
    EXPECT_GT(differing, 0U) << "the same bits: was it the same device?";
    std::printf("%s: %zu of %zu tensors differ, by %.2f of their bound at most\n", architecture.c_str(), differing,
                compared, closest);
  }
}

}  // namespace
}  // namespace ringtrain::testing
