// Whole runs of ranks with a GPU each, connected by NCCL: on every mesh, the losses and the state are those of ranks
// that are connected otherwise, to the bit; and a run ends correctly when NCCL does not work.
#include <set>

#include "layers/model_parameters.h"
#include "parallel/collectives.h"
#include "parallel/launch/communicator_factory.h"
#include "tests/parallel/cuda/gpu_ranks.h"
#include "tests/support/paths.h"
#include "tests/train/train_fixture.h"
#include "train/engine/rank_state.h"
#include "train/models/model_source.h"

namespace ringtrain::testing {
namespace {

class NcclRun : public TextTest {
 protected:
  static constexpr int max_ranks = 4;

  void SetUp() override {
    TextTest::SetUp();
    show_gpus(max_ranks);
    if (cuda::device_count() < max_ranks) GTEST_SKIP() << "too few GPUs";
  }
  void TearDown() override {
    expect_nccl_left_in_order();
    TrainTest::TearDown();
  }
  Config config(std::vector<std::string> settings) const {
    return tiny(data, joined({"training.device=cuda", "training.dtype=bfloat16", "training.seq_len=13",
                              "training.global_batch_size=2", "training.steps=2"},
                             settings));
  }
};

TEST_F(NcclRun, GivesTheBitsOfThreads) {
  for (const auto& [data_ranks, sequence, layout] : {std::tuple{1, 2, "zigzag"}, {1, 4, "striped"}, {2, 2, "zigzag"}}) {
    const std::string mesh = fmt::format("{}x{}", data_ranks, sequence);
    SCOPED_TRACE(mesh);
    for (const std::string backend : {"threads", "nccl"}) {
      run(config(
              joined(mesh_of(data_ranks, sequence), {std::string("mesh.layout=") + layout, "mesh.backend=" + backend})),
          mesh + backend);
    }
    EXPECT_EQ(losses(mesh + "threads").size(), 2u);
    expect_same_bits(mesh + "nccl", mesh + "threads");
  }
}

TEST_F(NcclRun, AddsGradientsItselfUnlessTheBitsAreToBeTheSame) {
  // Its sums need no staging, and differ only in rounding.
  const auto run_by = [&](const std::string& name, const std::string& backend, const std::string& deterministic) {
    const Config wanted = config({"mesh.data=2", "mesh.sequence=2", "training.steps=3", "mesh.backend=" + backend,
                                  "training.deterministic=" + deterministic});
    run(wanted, name);
    const auto plans = plan_ranks(wanted, make_parameter_table(wanted.model), training_purpose(wanted));
    std::vector<double> workspace(4);
    for (const RankPlan& plan : plans) {
      for (const int rank : plan.ranks) {
        double& one = workspace.at(static_cast<std::size_t>(rank));
        one = metrics(name).at(0).at("peak_bytes").at(static_cast<std::size_t>(rank)).at("workspace").get<double>();
        EXPECT_EQ(one, static_cast<double>(plan.peak[Tag::workspace])) << name << ", rank " << rank;
      }
    }
    return workspace;
  };
  const std::vector<double> staged = run_by("staged", "nccl", "true"), own = run_by("own", "nccl", "false");
  EXPECT_EQ(run_by("threads", "threads", "false"), staged);
  const bool auto_is_nccl = nccl_is_planned({.sequence = 4}, Device::cuda(0));
  EXPECT_EQ(run_by("auto", "auto", "false"), auto_is_nccl ? own : staged);
  const ParameterTable table = make_parameter_table(config({}).model);
  std::int64_t largest = 0;
  for (int bucket = 0; bucket < table.buckets(); ++bucket) {
    largest = std::max(largest, table.bucket_end(bucket) - table.bucket_begin(bucket));
  }
  const double staging = 2 * 4 * static_cast<double>(reduce_scatter_staging(largest, 4));
  for (std::size_t rank = 0; rank < own.size(); ++rank) EXPECT_NEAR(staged[rank] - own[rank], staging, 2 * 256);

  EXPECT_EQ(losses("own").at(0), losses("staged").at(0));
  EXPECT_NEAR(numbers("own", "grad_norm").at(0), numbers("staged", "grad_norm").at(0), 1e-6);
  for (std::size_t step = 0; step < 3; ++step) {
    EXPECT_NEAR(losses("own").at(step), losses("staged").at(step), 1e-3 * losses("staged").at(step));
  }
#if defined(RINGTRAIN_CUDA_EMULATED)
  EXPECT_NE(state(checkpoint("own", 3)), state(checkpoint("staged", 3)));  // in the emulator, it goes around the ranks
#endif
}

#if defined(RINGTRAIN_CUDA_EMULATED)

TEST_F(NcclRun, ShardingChangesNoBit) {
  const std::vector<std::vector<std::string>> cases{
      {"mesh.sequence=2", "mesh.backend=threads", "training.offload=activations+optimizer",
       "training.micro_batch_size=2"},
      {"mesh.sequence=3", "mesh.backend=nccl", "training.micro_batch_size=2", "model.tie_word_embeddings=false"},
      {"mesh.data=2", "mesh.sequence=2", "mesh.backend=nccl", "training.offload=activations", "training.recompute=full",
       "training.trainable=[\"*norm*\", \"*.1.*\"]"}};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto run_by = [&](Shard shard) {
      const std::string name = fmt::format("{}-{}", i, name_of(shard));
      run(config(joined(cases[i], {fmt::format("training.shard={}", name_of(shard))})), name);
      return name;
    };
    const std::string whole = run_by(Shard::optimizer);
    for (const Shard shard : {Shard::gradients, Shard::weights}) expect_same_bits(run_by(shard), whole);
  }
}

// Adapters of a base, with everything that a run on GPUs shards, recomputes, and moves to the host.
TEST_F(NcclRun, ShardingAndOffloadingAdaptersChangeNoBit) {
  const std::string base = source_folder() + "/tests/models/folders/llama";
  const auto run_by = [&](std::vector<std::string> settings, const std::string& name) {
    settings.insert(settings.end(), {"lora.rank=3", "lora.targets=[q_proj, v_proj, o_proj, up_proj, down_proj]"});
    Config adapted = config(settings);
    const LoraConfig lora = adapted.model.lora;
    adapted.model = open_model(base).model;
    adapted.model.lora = lora;
    run(adapted, name, from(base));
  };
  const std::vector<std::vector<std::string>> meshes{
      {},
      {"mesh.sequence=2", "mesh.backend=nccl", "training.micro_batch_size=2", "training.recompute=full"},
      {"mesh.sequence=3", "mesh.backend=threads", "training.micro_batch_size=2"},
      {"mesh.data=2", "mesh.sequence=2", "mesh.backend=nccl", "training.recompute=none"}};
  for (std::size_t i = 0; i < meshes.size(); ++i) {
    const std::string whole = fmt::format("{}", i);
    run_by(meshes[i], whole);
    const auto expected = state(checkpoint(whole, 2));
    EXPECT_GT(expected.size(), 10u);
    for (const auto& [name, values] : expected) EXPECT_TRUE(holds(name, ".lora_"));
    for (const std::string offload : {"none", "activations", "activations+optimizer"}) {
      const std::string name = whole + "-" + offload;
      run_by(joined(meshes[i], {"training.shard=weights", "training.offload=" + offload}), name);
      expect_same_bits(name, whole);
    }
  }
}

// Loading a kernel, and allocating memory, may wait for all GPUs of the process. So no rank may load while an operation
// of NCCL waits for it: ranks load our kernels before they join, and cuBLASLt's in first passes, which run in lockstep.
// Documents are so short that the ring brings some rank gradients for the first time in a later step.
TEST_F(NcclRun, RunsWhereLoadingWaitsForEveryGpu) {
  data = write_tokens("split.h5", {.longest = 200, .validation_documents = 30});
  const std::vector<std::vector<std::string>> cases{
      {"mesh.sequence=3", "training.recompute=full", "training.audit.interval=2"},
      {"mesh.data=2", "mesh.sequence=2", "training.shard=weights", "training.deterministic=false"}};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const auto run_by = [&](const std::string& backend) {
      const std::string name = fmt::format("{}-{}", i, backend);
      run(config(joined(cases[i], {"training.steps=4", "mesh.timeout_seconds=30", "evaluation.interval=2",
                                   "evaluation.context_lengths=[6, 13]", "evaluation.target_tokens=3",
                                   "mesh.backend=" + backend})),
          name);
      return name;
    };
    cuda_emulator::set_loading_waits(true);
    const std::string nccl = run_by("nccl");
    cuda_emulator::set_loading_waits(false);
    ASSERT_EQ(losses(nccl).size(), 4u);
    if (i > 0) continue;  // NCCL adds in its own order
    const std::string threads = run_by("threads");
    expect_same_bits(nccl, threads);
  }
}

// According to NCCL's documentation; no such NCCL has run here yet.
TEST_F(NcclRun, ThreadsShareAGpuFromNccl230On) {
  cuda_emulator::set_devices({.count = 1});
  run(config({"mesh.sequence=2", "mesh.backend=threads"}), "expected");
  cuda_emulator::set_nccl_version(NCCL_VERSION(2, 30, 0));
  ASSERT_EQ(std::getenv("NCCL_MULTI_RANK_GPU_ENABLE"), nullptr);
  run(config({"mesh.sequence=2", "mesh.backend=nccl", "mesh.share_gpu=true"}), "found");
  ::unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
  expect_same_bits("found", "expected");
}

TEST_F(NcclRun, EndsWhenAnExchangeHangs) {
  constexpr int seconds = 10;  // shorter than a healthy rank's kernels may take here: another rank would give up first
  expect_error_holding(ExitCode::rank, {fmt::format("of 4 waited {} s (mesh", seconds), "on its GPU", "layer"}, [&] {
    cuda_emulator::hang_nccl_group(2, 30);
    run(config({"mesh.sequence=4", "mesh.backend=nccl", fmt::format("mesh.timeout_seconds={}", seconds)}), "run");
  });
}

TEST_F(NcclRun, EndsWithAnErrorOfNccl) {
  expect_error_holding(ExitCode::device, {"rank 3 of 4", "unhandled cuda error"}, [&] {
    cuda_emulator::break_nccl_group(3, 30, ncclUnhandledCudaError);  // a step has about 14
    run(config({"mesh.sequence=2", "mesh.data=2", "mesh.backend=nccl", "training.steps=4"}), "run");
  });
}

// A context takes half a gigabyte of its card. The emulator throws if a thread without a card creates one.
TEST_F(NcclRun, SavesInTheBackgroundWithContextsOnlyOnItsRanksCards) {
  run(config({"mesh.sequence=2", "mesh.backend=nccl", "checkpoint.interval=1", "checkpoint.background=true"}), "run");
  EXPECT_EQ(cuda_emulator::contexts(), (std::set<int>{0, 1}));
}

TEST_F(NcclRun, EndsBeforeItBeginsWhereRanksShareAGpu) {
  cuda_emulator::set_devices({.count = 3});
  expect_error_holding(ExitCode::usage, {"ranks 0 and 3 of 4 share one"}, [&] {
    run(config({"mesh.sequence=4", "mesh.backend=nccl"}), "run");
  });
}

#endif

}  // namespace
}  // namespace ringtrain::testing
