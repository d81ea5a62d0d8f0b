// Ranks as processes: the built programs under mpirun give the bits of thread ranks on the same mesh, checkpoints can
// be used by both, and inconsistent settings are refused before anything starts.

#include "tests/support/paths.h"
#include "tests/train/child_process.h"
#include "tests/train/train_fixture.h"

namespace ringtrain::testing {
namespace {

class MpiRuns : public SplitTextTest {
 protected:
  void SetUp() override {
    SplitTextTest::SetUp();
    prepare_for_mpirun(folder);
    write_config(tiny(
        data, {"training.steps=6", "checkpoint.interval=3", "evaluation.interval=3",
               "evaluation.context_lengths=[16,32]", "evaluation.target_tokens=8", "evaluation.target_blocks=10"}));
  }
  void TearDown() override {
    ::unsetenv("TMPDIR");
    TrainTest::TearDown();
  }
  ChildResult mpirun(int processes, std::vector<std::string> command) const {
    command[0] = binary_folder() + "/" + command[0];
    return run_child(
        MPIEXEC, joined({"--oversubscribe", "--bind-to", "none", "-n", std::to_string(processes)}, command), folder);
  }
  static std::vector<std::string> train_command(const std::string& output, int data_ranks, int sequence,
                                                const std::vector<std::string>& more = {}) {
    const auto mesh = mesh_of(data_ranks, sequence);
    return joined({"train", "--config", "run.yaml", "--output", output, "--set", mesh[0], "--set", mesh[1]}, more);
  }
  ChildResult threads(const std::vector<std::string>& command) const { return run_command(command, folder); }
  /// Expects all numbers in the output of two runs to be the same text.
  void expect_same_run(const std::string& found, const std::string& expected) const {
    for (const char* kind : {"train", "evaluation"}) {
      auto a = metrics(found, kind), b = metrics(expected, kind);
      ASSERT_EQ(a.size(), b.size());
      ASSERT_GT(b.size(), 0u);
      for (std::size_t i = 0; i < a.size(); ++i) {
        for (nlohmann::json* line : {&a[i], &b[i]}) {
          for (const char* time : {"time", "seconds", "tokens_per_second", "ring_wait_seconds", "started"})
            line->erase(time);
          if (!line->contains("ring")) continue;
          for (const char* times : {"forward", "backward"}) line->at("ring").erase(times);
        }
        if (a[i].contains("peak_bytes") != b[i].contains("peak_bytes")) {  // reported when a run begins or continues
          for (nlohmann::json* line : {&a[i], &b[i]}) line->erase("peak_bytes");
        }
        EXPECT_EQ(a[i].dump(), b[i].dump());
      }
    }
    EXPECT_EQ(state(checkpoint(found, 6)), state(checkpoint(expected, 6)));
  }
};

TEST_F(MpiRuns, GiveTheBitsOfThreadRanks) {
  for (const auto& [data_ranks, sequence] : {std::pair{1, 2}, {2, 2}, {2, 3}}) {
    const std::string name = fmt::format("{}x{}", data_ranks, sequence);
    ChildResult result = threads(train_command(name + "-threads", data_ranks, sequence));
    ASSERT_EQ(result.code, 0) << result.err;
    result = mpirun(data_ranks * sequence, train_command(name + "-mpi", data_ranks, sequence));
    ASSERT_EQ(result.code, 0) << result.err;
    expect_same_run(name + "-mpi", name + "-threads");
    // One process prints.
    const std::string last = "train 6/6 (100%)";
    EXPECT_TRUE(holds(result.err, last));
    EXPECT_EQ(result.err.find(last), result.err.rfind(last)) << result.err;
  }
}

TEST_F(MpiRuns, ExchangeCheckpointsWithThreadRanks) {
  ASSERT_EQ(threads(train_command("whole", 2, 2)).code, 0);
  ASSERT_EQ(mpirun(4, train_command("mixed", 2, 2, {"--stop-after", "3"})).code, 0);
  ChildResult result = threads(train_command("mixed", 2, 2, {"--resume"}));
  EXPECT_EQ(result.code, 0) << result.err;
  expect_same_run("mixed", "whole");
  ASSERT_EQ(threads(train_command("other", 2, 2, {"--stop-after", "3"})).code, 0);
  result = mpirun(4, train_command("other", 2, 2, {"--resume"}));
  EXPECT_EQ(result.code, 0) << result.err;
  expect_same_run("other", "whole");
}

TEST_F(MpiRuns, EvaluateAsThreadRanksDo) {
  ASSERT_EQ(threads(train_command("run", 1, 1)).code, 0);
  const std::vector<std::string> command{"evaluate", "--checkpoint",    "run", "--data",
                                         data,       "--mesh",          "2x2", "--context-lengths",
                                         "16,32,64", "--target-tokens", "8",   "--output"};
  const ChildResult expected = threads(joined(command, {"threads.json"}));
  ASSERT_EQ(expected.code, 0) << expected.err;
  const ChildResult found = mpirun(4, joined(command, {"mpi.json"}));
  ASSERT_EQ(found.code, 0) << found.err;
  EXPECT_EQ(found.out, expected.out);
  EXPECT_EQ(content_of(at("mpi.json")), content_of(at("threads.json")));
}

TEST_F(MpiRuns, RefuseWhatDoesNotFit) {
  const auto expect_usage = [&](const ChildResult& result, const std::vector<std::string>& parts) {
    EXPECT_EQ(result.code, 2) << result.err;
    for (const std::string& part : parts) {
      const std::size_t first = result.err.find(part);
      EXPECT_NE(first, std::string::npos) << part << "\n" << result.err;
      EXPECT_EQ(result.err.find(part, first + 1), std::string::npos) << "reported twice:\n" << result.err;
    }
    EXPECT_FALSE(fs::exists(at("run")));
  };
  expect_usage(mpirun(3, train_command("run", 2, 2)), {"the mesh has 4 ranks", "3 processes were started", "-n 4"});
  expect_usage(mpirun(2, train_command("run", 2, 1, {"--set", "mesh.backend=threads"})),
               {"mesh.backend threads puts all 2 ranks into one process"});
  expect_usage(threads(train_command("run", 2, 1, {"--set", "mesh.backend=mpi"})), {"mesh.backend mpi needs"});
  expect_usage(mpirun(2, train_command("run", 2, 1, {"--set", "training.seqlen=5"})), {"did you mean"});
  // Ranks that begin differently.
  const std::string program = binary_folder() + "/train";
  auto first = train_command("run", 2, 1), second = first;
  first[0] = second[0] = program;
  auto elsewhere = train_command("run-too", 2, 1);
  elsewhere[0] = program;
  second.insert(second.end(), {"--set", "training.seed=8"});
  const auto with_second_rank = [&](const std::vector<std::string>& other) {
    const std::vector<std::string> one{"--oversubscribe", "-n", "1"}, two{":", "-n", "1"};
    return run_child(MPIEXEC, joined(joined(one, first), joined(two, other)), folder);
  };
  expect_usage(with_second_rank(second), {"training.seed is its default on rank 0, and 8 here"});
  expect_usage(with_second_rank(elsewhere),
               {"the run's folder (--output) is " + at("run") + " on rank 0, and " + at("run-too")});
  EXPECT_FALSE(fs::exists(at("run-too")));
}

TEST_F(MpiRuns, AProcessOfThreadRanksReportsTheLastCallsOfEach) {
  ::setenv("RINGTRAIN_FAULT", "1:ring keys and values:1:diverge", 1);
  const ChildResult result = mpirun(1, train_command("run", 1, 2, {"--set", "mesh.backend=threads"}));
  ::unsetenv("RINGTRAIN_FAULT");
  EXPECT_EQ(result.code, 6) << result.err;
  EXPECT_TRUE(holds(result.err, "  rank 1 of 2:\n")) << result.err;
}

}  // namespace
}  // namespace ringtrain::testing
