// Whole runs on a GPU: the losses of the CPU's run, checkpoints that work in both directions, the same bits in two runs
// and across a checkpoint, meshes that share one card, offloading, and the response to a card that does not work.

#include "tests/support/gpu.h"
#include "tests/train/train_fixture.h"

namespace ringtrain::testing {
namespace {

class GpuRun : public OnGpu<TextTest> {
 protected:
  GpuRun() : OnGpu({.validation_documents = 10, .weights = true}) {}
  /// So short that the emulator, which processes some hundred tokens a second, finishes in seconds.
  Config small(std::vector<std::string> settings) const {
    return tiny(data, joined({"training.seq_len=13", "training.global_batch_size=4", "training.steps=6"}, settings));
  }
  Config on_gpu(std::vector<std::string> settings, const std::string& dtype = "float32") const {
    return small(joined({"training.device=cuda", "training.dtype=" + dtype}, settings));
  }
  Config on_cpu(std::vector<std::string> settings) const { return small(joined({"training.dtype=float32"}, settings)); }
};

TEST_F(GpuRun, LearnsWhatTheCpuLearns) {
  const std::vector<std::string> length{"training.steps=100", "training.global_batch_size=2"};
  run(on_cpu(length), "cpu");
  const auto reference = losses("cpu");
  ASSERT_EQ(reference.size(), 100u);
  EXPECT_LT(reference.back(), 0.95 * reference.front()) << "nothing was learnt";
  for (const char* const dtype : {"float32", "bfloat16"}) {
    SCOPED_TRACE(dtype);
    run(on_gpu(length, dtype), dtype);
    expect_close(losses(dtype), reference, 0.01);
  }
}

TEST_F(GpuRun, MeshesOnOneCardEqualOneRank) {
  run(on_gpu({"training.steps=3"}), "one");
  for (const auto& [data_ranks, sequence, layout] :
       {std::tuple{1, 2, "zigzag"}, {2, 1, "contiguous"}, {2, 2, "striped"}, {1, 3, "contiguous"}}) {
    const std::string name = fmt::format("{}x{}", data_ranks, sequence);
    SCOPED_TRACE(name);
    run(on_gpu(joined(mesh_of(data_ranks, sequence), {std::string("mesh.layout=") + layout, "mesh.backend=threads",
                                                      "training.micro_batch_size=2", "training.steps=3"})),
        name);
    expect_close(losses(name), losses("one"), 1e-4);
  }
}

TEST_F(GpuRun, CheckpointsGoBothWays) {
  run(on_cpu({}), "cpu");
  run(on_cpu({}), "from-cpu", {}, 3);
  run(on_gpu({}), "from-cpu", resumed());
  expect_close(losses("from-cpu"), losses("cpu"), 1e-4);
  run(on_gpu({"mesh.sequence=2", "mesh.backend=threads"}), "from-gpu", {}, 3);
  run(on_cpu({}), "from-gpu", resumed());
  expect_close(losses("from-gpu"), losses("cpu"), 1e-4);
}

TEST_F(GpuRun, GivesTheSameBitsTwiceAndOverACheckpoint) {
  const std::vector<std::string> mesh{"mesh.sequence=2", "mesh.data=2", "mesh.backend=threads"};
  expect_resumes(on_gpu(mesh, "bfloat16"), {2});
}

TEST_F(GpuRun, OffloadingChangesNoBit) {
  const std::vector<std::string> deep{"model.num_hidden_layers=5", "training.steps=3", "training.global_batch_size=2"};
  for (const char* const dtype : {"float32", "bfloat16"}) {
    const std::string name = dtype;
    run(on_gpu(deep, dtype), name + " none");
    for (const auto& [offload, share] :
         {std::pair{"activations", 1.0}, {"activations+optimizer", 1.0}, {"optimizer", 1.0}, {"optimizer", 0.4}}) {
      const std::string run_name = fmt::format("{} {} {}", name, offload, share);
      SCOPED_TRACE(run_name);
      const std::vector<std::string> offloads{fmt::format("training.offload={}", offload),
                                              fmt::format("optimizer.host_share={}", share)};
      run(on_gpu(joined(deep, offloads), dtype), run_name);
      expect_same_bits(run_name, name + " none");
    }
  }
}

TEST_F(GpuRun, IsEvaluatedOnEitherDevice) {
  run(on_gpu({"training.steps=2"}, "bfloat16"), "run");
  EvaluationOptions options = evaluation_of("run", data, {{8, 16}, 4, 3});
  options.device = "cuda";
  const EvaluationSummary gpu = evaluate_on_threads(options);
  options.device = "cpu";
  const EvaluationSummary cpu = evaluate_on_threads(options);
  ASSERT_EQ(gpu.results.size(), cpu.results.size());
  for (std::size_t i = 0; i < gpu.results.size(); ++i) {
    EXPECT_NEAR(gpu.results[i].nll.value, cpu.results[i].nll.value, 0.02 * cpu.results[i].nll.value);
  }
}

}  // namespace
}  // namespace ringtrain::testing
