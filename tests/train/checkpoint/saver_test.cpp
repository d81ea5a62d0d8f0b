// Background saves: sharded by rank, one manifest, one in flight, restored bit for bit on any mesh; the effect of a
// failing disk under both policies; --verify-checkpoint.
#include <csignal>
#include <fstream>
#include <utility>

#include "framework/config/read_config.h"
#include "framework/copy_stream.h"
#include "framework/storage/files.h"
#include "layers/model_parameters.h"
#include "parallel/launch/launch.h"
#include "tests/train/child_process.h"
#include "tests/train/faulty_disk.h"
#include "tests/train/train_fixture.h"
#include "train/checkpoint/checkpoint.h"
#include "train/engine/rank_state.h"
#include "train/models/load_weights.h"
#include "train/step/checkpoint_saver.h"

namespace ringtrain::testing {
namespace {

class Saver : public TextTest {
 protected:
  Config config(const std::vector<std::string>& more = {}) const {
    return tiny(data, joined({"training.global_batch_size=4", "training.steps=8", "checkpoint.interval=2",
                              "checkpoint.keep=10"},
                             more));
  }
  /// Runs the program `train` with this config, into the folder "run".
  ChildResult train_program(const Config& settings, const std::vector<std::string>& arguments = {}) const {
    write_config(settings);
    return run_child("train", joined({"--config", "run.yaml", "--output", "run"}, arguments), folder);
  }
  /// Returns how many checkpoints are currently being written.
  std::int64_t half_saved() const {
    const auto names = list_directory(at("run/checkpoints"), ExitCode::data);
    return std::ranges::count_if(names, [](const std::string& name) { return holds(name, ".partial"); });
  }
};

TEST_F(Saver, EveryRankWritesItsOwnSlicesAndNoMore) {
  run(config({"mesh.data=2", "mesh.sequence=2"}), "run");
  const std::string saved = checkpoint("run", 8);
  const Checkpoint opened = open_checkpoint(saved);
  EXPECT_EQ(opened.manifest.ranks, 4);
  ASSERT_EQ(opened.manifest.files.size(), 9u);  // including the lists and config.yaml
  std::int64_t largest = 0, all = 0;
  for (int rank = 0; rank < 4; ++rank) {
    const auto& file = opened.manifest.files[2 * rank];
    EXPECT_EQ(saved + "/" + file.name, state_file(saved, rank, 4));
    largest = std::max(largest, file.bytes);
    all += file.bytes;
  }
  EXPECT_LT(static_cast<double>(largest), 0.3 * static_cast<double>(all));
  check_state(opened);
  for (const auto& [name, values] : state(saved)) {
    for (const double value : values) ASSERT_TRUE(std::isfinite(value)) << name;
  }
}

TEST_F(Saver, AnotherMeshReadsTheVeryBits) {
  run(config({"mesh.data=2", "mesh.sequence=2"}), "run");
  const auto reference = state(checkpoint("run", 8));
  for (const auto& [data_ranks, ring] : {std::pair{1, 1}, {1, 3}, {4, 1}, {1, 8}}) {
    const Config other = config({fmt::format("mesh.data={}", data_ranks), fmt::format("mesh.sequence={}", ring)});
    const ParameterTable table = make_parameter_table(other.model);
    const std::string copy = at(fmt::format("copy{}x{}", data_ranks, ring));
    fs::create_directory(copy);
    launch_threads({.ranks = data_ranks * ring, .timeout_seconds = 60}, [&](Communicator& world) {
      ThreadPool pool(1);
      RankState rank(other, table, training_purpose(other), world.rank(), Device::cpu(), pool, &world);
      const Checkpoint opened = open_checkpoint(checkpoint("run", 8));
      const ModelSource source = model_of(opened);
      load_weights(rank, &source);
      load_optimizer_state(rank, opened);
      CopyStream copies;
      copies.set_stream(rank.stream);
      take_snapshot(rank, copies);
      write_state(rank, copy, 8);
    });
    EXPECT_EQ(std::distance(fs::directory_iterator(copy), fs::directory_iterator{}), 2 * data_ranks * ring);
    EXPECT_EQ(state(copy), reference) << copy;
  }
}

TEST_F(Saver, FilesWithAMissingOrRepeatedElementAreRefused) {
  run(config({"mesh.sequence=2"}), "run");
  Checkpoint opened = open_checkpoint(checkpoint("run", 8));
  check_state(opened);
  auto& files = opened.manifest.files;
  const std::vector<CheckpointFile> first(files.begin(), files.begin() + 2);
  files.erase(files.begin(), files.begin() + 2);
  expect_error_holding(ExitCode::checkpoint, {"are missing from its files"}, [&] { check_state(opened); });
  for (int i = 0; i < 2; ++i) files.insert(files.begin(), first.begin(), first.end());
  expect_error_holding(ExitCode::checkpoint, {"are stored twice in its files"}, [&] { check_state(opened); });
}

TEST_F(Saver, WithoutSnapshotTheSameStateAndLessMemory) {
  const Config background = config({"mesh.data=2"}), waiting = config({"mesh.data=2", "checkpoint.background=false"});
  run(background, "background");
  run(waiting, "waiting");
  for (const std::int64_t step : {2, 4, 6, 8}) {
    for (int rank = 0; rank < 2; ++rank) {
      EXPECT_EQ(content_of(state_file(checkpoint("background", step), rank, 2)),
                content_of(state_file(checkpoint("waiting", step), rank, 2)));
    }
  }
  // The snapshot: weights and two moments, once over all ranks.
  const auto saving = [](const Config& one) {
    std::size_t bytes = 0;
    for (const RankPlan& plan : plan_ranks(one, make_parameter_table(one.model), training_purpose(one))) {
      bytes += plan.ranks.size() * (plan.peak[Tag::checkpoint] - RankState::staging_elements * sizeof(double));
    }
    return static_cast<double>(bytes);
  };
  const auto all = static_cast<double>(3 * 8 * make_parameter_table(background.model).count());
  EXPECT_GE(saving(background), all);
  EXPECT_LE(saving(background), all + 2 * 64);  // except for alignment
  EXPECT_EQ(saving(waiting), 0);
  EXPECT_EQ(saving(config({"checkpoint.interval=0"})), 0);  // the last save waits anyway
}

TEST_F(Saver, NothingIsSavedWhereTheConfigSaysSo) {
  for (const auto* mesh : {"mesh.data=1", "mesh.data=2"}) {
    fs::remove_all(at("run"));
    const ChildResult never = train_program(config({"checkpoint.interval=-1", mesh}));
    ASSERT_EQ(never.code, 0) << never.err;
    EXPECT_TRUE(holds(never.err, "step 8 is not saved: checkpoint.interval is -1"));
    EXPECT_EQ(saved_steps("run"), std::vector<std::int64_t>{});
    EXPECT_EQ(half_saved(), 0);
  }
}

TEST_F(Saver, ARunThatASignalStopsIsSavedAlsoWhereTheConfigSaysNever) {
  // Only once, although a step has several micro-batches: a second signal would end the program.
  const auto raise_once = [raised = false](RankState&, std::int64_t step) mutable {
    if (step == 3 && !std::exchange(raised, true)) ::raise(SIGTERM);
  };
  const TrainOptions options{.config = config({"checkpoint.interval=-1"}), .output = at("run")};
  EXPECT_EQ(run_with(options, raise_once).code, ExitCode::terminated);
  EXPECT_EQ(saved_steps("run"), std::vector<std::int64_t>{3});
}

TEST_F(Saver, TrainingGoesOnDuringASaveAndTheNextOneWaitsAndSaysSo) {
  RINGTRAIN_NEEDS_FAULTY_DISK();
  for (const auto* mesh : {"mesh.data=1", "mesh.sequence=2"}) {
    fs::remove_all(at("run"));
    const FaultyDisk slow({{"PATH", "step-00000004.partial-*/state-00000"}, {"SLOW", "fsync:1500"}});
    const ChildResult result = train_program(config({mesh}));
    ASSERT_EQ(result.code, 0) << result.err;
    // Step 6 was reached while step 4 was being written.
    EXPECT_TRUE(holds_all(result.err, {"step 6 waited ", "for the save of step 4"}));
    EXPECT_FALSE(holds(result.err, "for the save of step 6"));
    EXPECT_LT(result.err.find("step-00000004 in "), result.err.find("step-00000006 in ")) << result.err;
    EXPECT_EQ(saved_steps("run"), (std::vector<std::int64_t>{2, 4, 6, 8}));
    EXPECT_EQ(half_saved(), 0);
  }
}

TEST_F(Saver, ASaveMayOutlastTheTimeout) {
  RINGTRAIN_NEEDS_FAULTY_DISK();
  const FaultyDisk slow({{"PATH", "step-00000008.partial-*/manifest.json"}, {"SLOW", "fsync:2500"}});
  expect_end(train_program(config({"mesh.data=2", "mesh.timeout_seconds=1"})), 0);
  EXPECT_EQ(saved_step("run"), 8);
}

TEST_F(Saver, AFullDiskEndsTheRunOrIsReportedAndIgnored) {
  RINGTRAIN_NEEDS_FAULTY_DISK();
  for (const auto* mesh : {"mesh.data=1", "mesh.data=2"}) {
    for (const std::string part : {"", "/state-00000", "/state-*.json", "/config.yaml", "/manifest.json"}) {
      const FaultyDisk full({{"PATH", "step-00000004.partial-*" + part}, {"AT", "1"}, {"ERROR", "28"}, {"LASTS", "1"}});
      fs::remove_all(at("run"));
      ChildResult result = train_program(config({mesh}));
      expect_end(result, 4, {"No space left on device"});
      EXPECT_EQ(saved_step("run"), 2);
      EXPECT_EQ(half_saved(), 0) << mesh << part << result.err;
      fs::remove_all(at("run"));
      result = train_program(config({mesh, "checkpoint.on_failure=warn"}));
      expect_end(result, 0, {"warning: the save of step 4 failed"});
      EXPECT_EQ(saved_steps("run"), (std::vector<std::int64_t>{2, 6, 8}));
      EXPECT_EQ(saved_step("run"), 8);
    }
  }
}

TEST_F(Saver, TheLastSaveMustSucceedUnderEveryPolicy) {
  RINGTRAIN_NEEDS_FAULTY_DISK();
  const FaultyDisk full({{"PATH", "step-00000008.partial"}, {"AT", "3"}, {"ERROR", "28"}, {"LASTS", "1"}});
  expect_end(train_program(config({"checkpoint.on_failure=warn"})), 4);
  EXPECT_EQ(saved_step("run"), 6);
}

TEST_F(Saver, MetricsThatTheDiskRefusesEndTheRunOrWait) {
  RINGTRAIN_NEEDS_FAULTY_DISK();
  // Call 1 opens the file, 2 and 3 write its first lines, 4 brings them to the disk for the save of step 2.
  const Config waiting = config({"checkpoint.background=false"}),
               warned = config({"checkpoint.background=false", "checkpoint.on_failure=warn"});
  {
    const FaultyDisk full({{"PATH", "run/metrics.jsonl"}, {"AT", "5"}, {"ERROR", "28"}, {"LASTS", "1"}});
    expect_end(train_program(config({"checkpoint.interval=-1", "checkpoint.on_failure=warn"})), 4, {"metrics.jsonl"});
    fs::remove_all(at("run"));
    ChildResult result = train_program(waiting);
    expect_end(result, 4, {"metrics.jsonl"});
    fs::remove_all(at("run"));
    result = train_program(warned);  // the last save needs the lines
    expect_end(result, 4,
               {"metrics are kept in memory", "warning: the save of step"});  // never has more than the metrics
    EXPECT_EQ(saved_step("run"), 2);
    EXPECT_EQ(numbers("run", "step").back(), 2);
  }
  EXPECT_EQ(train_program(config(), {"--resume"}).code, 0);
  EXPECT_EQ(numbers("run", "step"), (std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8}));
  fs::remove_all(at("run"));
  const FaultyDisk once({{"PATH", "run/metrics.jsonl"}, {"AT", "6"}, {"ERROR", "28"}});
  expect_end(train_program(warned), 0, {"the metrics that were kept in memory are written"});
  EXPECT_EQ(numbers("run", "step"), (std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8}));
}

TEST_F(Saver, VerifyNamesWhatIsDamaged) {
  run(config({"mesh.data=2"}), "run");
  ChildResult result = run_child("train", {"--verify-checkpoint", "run"}, folder);
  EXPECT_EQ(result.code, 0) << result.err;
  for (const auto* step : {"step-00000002: good", "step-00000008: good: step 8, 5 files"}) {
    EXPECT_TRUE(holds(result.out, step));
  }
  const std::string damaged = state_file(checkpoint("run", 4), 1, 2);
  flip_bit(damaged, static_cast<std::int64_t>(fs::file_size(damaged) / 2), 2);
  result = run_child("train", {"--verify-checkpoint", "run"}, folder);
  EXPECT_EQ(result.code, 4);
  EXPECT_TRUE(holds(result.err, "step-00000004/state-00001-of-00002.h5: has hash"));
  EXPECT_TRUE(holds(result.out, "step-00000008: good"));
  EXPECT_EQ(run_child("train", {"--verify-checkpoint", checkpoint("run", 8)}, folder).code, 0);
  EXPECT_EQ(run_child("train", {"--verify-checkpoint", checkpoint("run", 4)}, folder).code, 4);
  EXPECT_EQ(run_child("train", {"--verify-checkpoint", "nowhere"}, folder).code, 4);
  EXPECT_EQ(run_child("train", {}, folder).code, 2);  // otherwise it needs a config
}

}  // namespace
}  // namespace ringtrain::testing
