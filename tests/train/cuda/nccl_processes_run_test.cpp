// Whole runs whose ranks are processes with a GPU each, connected by NCCL, as scripts/launch starts them: losses and
// state are those of thread ranks on the same mesh, to the bit; checkpoints can be used by both and on other meshes;
// each process uses the GPU with its index on the machine. Failures end all processes within the promised time, with
// one message and the right code. (How communicators fail: tests/parallel/cuda/nccl_processes_test.cpp.)
#if defined(RINGTRAIN_CUDA_EMULATED) && RINGTRAIN_MPI

#include <chrono>
#include <cstdlib>
#include <sstream>

#include "cuda_emulator.h"
#include "framework/system/host_name.h"
#include "tests/train/launch_fixture.h"

namespace ringtrain::testing {
namespace {

class NcclProcessRuns : public SplitTextTest {
 protected:
  static constexpr double timeout_seconds = 4, slack_seconds = 5;

  void SetUp() override {
    SplitTextTest::SetUp();
    ::setenv("CUDA_EMULATOR_DEVICES", "4", 1);
    ::setenv("CUDA_EMULATOR_TELL", "1", 1);
    ::setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
    cuda_emulator::reset();
    write_config(config({}));
  }
  void TearDown() override {
    for (const char* const name : {"CUDA_EMULATOR_DEVICES", "CUDA_EMULATOR_TELL", "ASAN_OPTIONS"}) ::unsetenv(name);
    cuda_emulator::reset();
    TrainTest::TearDown();
  }
  Config config(std::vector<std::string> settings) const {
    return tiny(data, joined({"training.device=cuda", "training.dtype=bfloat16", "training.seq_len=13",
                              "training.global_batch_size=2", "training.steps=3", "checkpoint.interval=1",
                              fmt::format("mesh.timeout_seconds={}", timeout_seconds)},
                             settings));
  }
  struct MeshShape {
    int data_ranks, sequence;
    int ranks() const { return data_ranks * sequence; }
  };
  static std::vector<std::string> train_command(const MeshShape& mesh, const std::string& output,
                                                const std::vector<std::string>& more) {
    const auto set = mesh_of(mesh.data_ranks, mesh.sequence);
    return joined(
        {binary_folder() + "/train", "--config", "run.yaml", "--output", output, "--set", set[0], "--set", set[1]},
        more);
  }
  std::vector<std::string> evaluate_command(const std::string& run, const std::vector<std::string>& more) const {
    return joined({binary_folder() + "/evaluate", "--checkpoint", run, "--data", data, "--context-lengths", "16",
                   "--target-blocks", "2", "--target-tokens", "8"},
                  more);
  }
  /// Runs a training as processes. each: what a shell of each process does before it becomes the program.
  ChildResult processes(const MeshShape& mesh, const std::string& output, const std::vector<std::string>& more = {},
                        const std::string& each = "") const {
    std::vector<std::string> arguments{"-n", std::to_string(mesh.ranks()), "--"};
    if (!each.empty()) arguments.insert(arguments.end(), {"/bin/sh", "-c", each + "; exec \"$0\" \"$@\""});
    return launch(joined(arguments, train_command(mesh, output, more)));
  }
  ChildResult launch(const std::vector<std::string>& arguments) const {
    return run_child(source_folder() + "/scripts/launch", arguments, folder);
  }
  /// The same with ranks that are threads, which copy from GPU to GPU.
  void threads(const MeshShape& mesh, const std::string& output, const std::vector<std::string>& more = {}) const {
    expect_done(run_command(train_command(mesh, output, joined(more, {"--set", "mesh.backend=threads"})), folder));
  }
  const std::vector<std::string> share{"--set", "mesh.share_gpu=true"};
  const std::vector<std::string> own_sums{"--set", "training.deterministic=false"};  // gradients are added by NCCL
  void expect_same_run(const std::string& found, const std::string& expected) const {
    EXPECT_EQ(losses(found).size(), 3u);
    expect_same_bits(found, expected);
    EXPECT_EQ(numbers(found, "grad_norm"), numbers(expected, "grad_norm"));
  }
  static void expect_done(const ChildResult& result) {
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_FALSE(holds(result.err, "misuse"));
  }
  /// Expects one report of an error.
  static void expect_messages(const ChildResult& result, int code, const std::string& words) {
    EXPECT_EQ(result.code, code) << result.err;
    int named = 0;
    std::istringstream lines(result.err);
    for (std::string line; std::getline(lines, line);)
      named += line.starts_with("train: ") && line.find(words) != line.npos;
    EXPECT_EQ(named, 1) << words << "\n" << result.err;
    EXPECT_FALSE(holds(result.err, "misuse"));
  }
};

// --- Results.

TEST_F(NcclProcessRuns, GiveTheBitsOfThreads) {
  for (const MeshShape& mesh : {MeshShape{1, 2}, MeshShape{2, 2}}) {
    const std::string name = fmt::format("{}x{}", mesh.data_ranks, mesh.sequence);
    threads(mesh, name + "-threads");
    expect_done(processes(mesh, name + "-nccl"));
    expect_same_run(name + "-nccl", name + "-threads");
  }
}

TEST_F(NcclProcessRuns, AddByNcclAsThreadsDo) {
  const MeshShape mesh{2, 2};
  expect_done(run_command(train_command(mesh, "threads", joined(own_sums, {"--set", "mesh.backend=nccl"})), folder));
  expect_done(processes(mesh, "processes", own_sums));
  expect_same_run("processes", "threads");
}

TEST_F(NcclProcessRuns, GoOnFromCheckpointsOfOtherMeshesAndRanks) {
  const MeshShape one{1, 2}, other{2, 1};
  threads(one, "expected", {"--stop-after", "1"});
  threads(other, "expected", {"--resume"});
  expect_done(processes(one, "found", {"--stop-after", "1"}));
  expect_done(processes(other, "found", {"--resume"}));
  expect_same_run("found", "expected");
}

TEST_F(NcclProcessRuns, TakeTheOneGpuThatALauncherShowsEach) {
  // As with a separate CUDA_VISIBLE_DEVICES for each process: GPU 0 differs between them, and has memory for only one
  // rank.
  threads({1, 2}, "expected");
  expect_done(processes({1, 2}, "found", {"--set", "mesh.backend=nccl"},
                        "export CUDA_EMULATOR_DEVICES=1 CUDA_EMULATOR_FIRST_DEVICE=$OMPI_COMM_WORLD_LOCAL_RANK "
                        "CUDA_EMULATOR_MEMORY=2080000000"));
  expect_same_run("found", "expected");
}

TEST_F(NcclProcessRuns, EvaluateWhatThreadsTrained) {
  // The checkpoint's config requests thread ranks, but these are processes.
  threads({1, 2}, "run");
  expect_done(run_command(evaluate_command("run", {"--mesh", "1x2", "--output", "expected.json"}), folder));
  expect_done(launch(joined({"-n", "2", "--"}, evaluate_command("run", {"--mesh", "1x2", "--output", "found.json"}))));
  EXPECT_EQ(content_of(at("found.json")), content_of(at("expected.json")));
}

// --- One GPU for all.

TEST_F(NcclProcessRuns, ShareAGpuWhereTheConfigSaysSo) {
  const Variable gpus("CUDA_EMULATOR_DEVICES", "1");
  const std::vector<std::string> weights{"--set", "training.shard=weights"};
  for (const auto& [mesh, more] :
       {std::pair{MeshShape{1, 2}, std::vector<std::string>{}}, {MeshShape{2, 2}, weights}}) {
    const std::string name = fmt::format("{}x{}", mesh.data_ranks, mesh.sequence);
    threads(mesh, name + "-threads", more);
    const ChildResult result = processes(mesh, name + "-nccl", joined(share, more));
    expect_done(result);
    EXPECT_TRUE(holds(result.err, "for checking, not for speed")) << result.err;
    expect_same_run(name + "-nccl", name + "-threads");
  }
  // The key may change on resume.
  threads({2, 1}, "expected", {"--stop-after", "1"});
  threads({1, 2}, "expected", {"--resume"});
  expect_done(processes({2, 1}, "found", joined(share, {"--stop-after", "1"})));
  threads({1, 2}, "found", {"--resume", "--set", "mesh.share_gpu=false"});
  expect_same_run("found", "expected");

  expect_done(run_command(evaluate_command("found", {"--output", "alone.json"}), folder));
  const auto ring = evaluate_command("found", {"--mesh", "1x3", "--share-gpu", "--output", "ring.json"});
  expect_done(launch(joined({"-n", "3", "--"}, ring)));
  const auto nll = [&](const char* file) {
    return nlohmann::json::parse(content_of(at(file))).at("results").at(0).at("nll").get<double>();
  };
  EXPECT_NEAR(nll("ring.json"), nll("alone.json"), 0.01);
}

TEST_F(NcclProcessRuns, ShareAGpuOnlyWhereTheyMust) {
  const auto refused = [&](const ChildResult& result, const std::string& words) {
    expect_messages(result, 2, words);
    EXPECT_FALSE(fs::exists(at("run")));
  };
  const auto by_threads = [&](const std::vector<std::string>& more) {
    return run_command(train_command({1, 2}, "run", joined(share, more)), folder);
  };
  refused(processes({1, 2}, "run", share), "mesh.share_gpu: each rank has a GPU of its own; set it to false");
  refused(processes({1, 1}, "run", share),
          "mesh.share_gpu lets processes of one host share a GPU, but there is one rank; set this key");
  refused(processes({1, 2}, "run", joined(share, {"--set", "training.device=cpu"})),
          "share a GPU, but training.device is cpu");
  refused(by_threads({}), "share a GPU, but the ranks are threads, which can share a GPU anyway");
  const Variable gpus("CUDA_EMULATOR_DEVICES", "1");
  refused(by_threads({"--set", "mesh.backend=nccl"}),
          "mesh.share_gpu: NCCL lets threads share a GPU from 2.30 on, but the NCCL here is older");
  // Both ranks are counted: there is memory for one.
  const Variable memory("CUDA_EMULATOR_MEMORY", "1100000000");
  refused(processes({1, 2}, "run", share), "of GPU 0");
}

// --- How they end.

TEST_F(NcclProcessRuns, EndWithARankThatDies) {
  // Within one machine, NCCL does not notice it; over a network, it does. The run ends in the same way.
  for (const auto& [place, deaths] : {std::pair{"ring keys and values:5", "unseen"},
                                      {"ring gradients:2", "seen"},
                                      {"gradient reduction of a bucket:3", "unseen"},
                                      {"gathering the weights of a bucket:2", "seen"}}) {
    SCOPED_TRACE(place);
    fs::remove_all(at("run"));
    const Variable fault("RINGTRAIN_FAULT", fmt::format("1:{}:kill", place)), seen("CUDA_EMULATOR_NCCL_DEATHS", deaths);
    const ChildResult result = processes({1, 2}, "run", own_sums);
    const std::int64_t end = std::chrono::steady_clock::now().time_since_epoch().count();
    expect_messages(result, 6, "rank 1 of 2 (process ");
    EXPECT_TRUE(holds(result.err, "has ended without a message"));
    const std::string mark = "fault: rank 1, kill, at ";
    const std::size_t named = result.err.find(mark);
    ASSERT_NE(named, std::string::npos) << "it never came so far\n" << result.err;
    EXPECT_LE(1e-9 * static_cast<double>(end - std::atoll(result.err.c_str() + named + mark.size())),
              timeout_seconds + slack_seconds);
  }
}

TEST_F(NcclProcessRuns, EndWithTheErrorOfARank) {
  const Variable fault("RINGTRAIN_FAULT", "1:ring gradients:2:throw");
  expect_messages(processes({1, 2}, "run"), 5, "rank 1 throws, as RINGTRAIN_FAULT says");
}

TEST_F(NcclProcessRuns, EndWithAGpuThatFails) {
  for (const auto& [function, nth] : {std::pair{"cudaMalloc", 9}, {"cudaStreamWaitEvent", 120}}) {
    SCOPED_TRACE(function);
    fs::remove_all(at("run"));
    const Variable fault("CUDA_EMULATOR_FAULT", fmt::format("1:{}:{}", function, nth));
    const ChildResult result = processes({1, 2}, "run");
    expect_messages(result, 7, "GPU 1 of host ");
    EXPECT_TRUE(holds(result.err, "cudaErrorECCUncorrectable"));
  }
}

TEST_F(NcclProcessRuns, AreRefusedWhereTwoWouldShareAGpu) {
  const Variable gpus("CUDA_EMULATOR_DEVICES", "2");
  for (const char* backend : {"nccl", "auto"}) {
    const ChildResult result = processes({1, 3}, "run", {"--set", std::string("mesh.backend=") + backend});
    expect_messages(result, 2, "NCCL needs one GPU for each rank, but ranks 0 and 2 of 3 share one (GPUs here: 2)");
    EXPECT_FALSE(fs::exists(at("run")));
  }
}

#if !defined(RINGTRAIN_SANITIZED)  // a sanitizer must be loaded before anything else

TEST_F(NcclProcessRuns, NameTheMachineWhereNcclIsTooOld) {
  for (const int rank : {0, 1}) {
    fs::remove_all(at("run"));
    const ChildResult result = processes(
        {1, 2}, "run", {},
        fmt::format("[ $OMPI_COMM_WORLD_RANK != {} ] || export LD_PRELOAD={}/emulated_nccl/too_old/libnccl.so.2", rank,
                    binary_folder()));
    expect_messages(result, 7,
                    "host " + host_name() + " has a libnccl.so.2 without ncclCommInitRankConfig: it is too old");
  }
}

#endif

}  // namespace
}  // namespace ringtrain::testing

#endif
