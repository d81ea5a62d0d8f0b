// The small parts of a run: the distribution of samples, waiting for rank 0, memory limits.
#include "train/run/run.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "framework/system/system_memory.h"
#include "parallel/launch/launch.h"
#include "parallel/rank_zero.h"
#include "tests/train/train_fixture.h"

namespace ringtrain::testing {
namespace {

class RunTest : public TextTest {};

TEST_F(RunTest, DataRanksTakeContiguousBlocksOfAStepInOrder) {
  for (const auto& [ranks, micro] : {std::pair{1, 1}, {2, 3}, {3, 4}, {24, 1}, {1, 24}}) {
    const Config config =
        tiny(data, {fmt::format("mesh.data={}", ranks), fmt::format("training.micro_batch_size={}", micro)});
    const ringtrain::Run prepared = prepare_run({.config = config, .output = at("run"), .stop_after = 0}, quiet);
    for (std::int64_t step = 1; step < 4; ++step) {
      std::vector<std::int64_t> found, expected;
      for (int rank = 0; rank < ranks; ++rank) {
        for (std::int64_t i = 0; i < prepared.micro_batches(step); ++i) {
          for (const Sample& sample : prepared.samples_of(step, rank, i)) found.push_back(sample.global_index);
        }
      }
      for (std::int64_t i = 0; i < 24; ++i)
        expected.push_back(prepared.samplers.at(config.training.seq_len).sample((step - 1) * 24 + i).global_index);
      EXPECT_EQ(found, expected);
      EXPECT_EQ(prepared.sample_indices(step), expected);
    }
  }
}

TEST(RankZero, MayOutlastTheTimeout) {
  std::atomic<bool> done{false};
  launch_threads({.ranks = 3, .timeout_seconds = 1}, [&](Communicator& world) {
    run_on_rank_zero(world, [&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(2500));  // longer than the timeout
      done = true;
    });
    EXPECT_TRUE(done);
  });
}

TEST(RankZero, AnErrorOfRankZeroEndsAllRanks) {
  expect_error(ExitCode::checkpoint, "the disk is full", [] {
    launch_threads({.ranks = 3, .timeout_seconds = 10}, [&](Communicator& world) {
      run_on_rank_zero(world, [] { fail(ExitCode::checkpoint, "the disk is full"); });
      world.barrier({"after the section"});
    });
  });
}

TEST_F(RunTest, CachedFilesOfAllControlGroupsCountAsFree) {
  using Group = std::array<std::string, 5>;
  for (const auto& [line, group, limit, usage, stat] :
       {Group{"0::/job/step", "/sys/fs/cgroup/job/", "memory.max", "memory.current", "active_file 6"},
        Group{"4:cpu,memory:/job/step", "/sys/fs/cgroup/memory/job/", "memory.limit_in_bytes", "memory.usage_in_bytes",
              "active_file 1\ntotal_inactive_file 2\ntotal_active_file 4"}}) {
    const std::map<std::string, std::string> files{
        {"/proc/self/cgroup", line}, {group + limit, "100"}, {group + usage, "60"}, {group + "memory.stat", stat}};
    for (const auto& [name, content] : files) {
      make_directories(parent_directory(folder + name), ExitCode::usage);
      write_file(folder + name, content, ExitCode::usage);
    }
    EXPECT_EQ(available_memory(folder), 100 - (60 - 6)) << line;
  }
}

TEST(SystemMemory, IsPositiveAndNoMoreThanTheMachineHas) {
  const std::int64_t available = available_memory();
  EXPECT_GT(available, std::int64_t{16} << 20);
  EXPECT_LT(available, std::int64_t{1} << 60);
}

}  // namespace
}  // namespace ringtrain::testing
