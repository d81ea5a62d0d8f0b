// Checkpoints on disk: what a manifest detects, how a resume handles damage, what a failed save leaves behind.
#include <fstream>

#include "framework/config/read_config.h"
#include "tests/train/train_fixture.h"
#include "train/checkpoint/checkpoint_folder.h"

namespace ringtrain::testing {
namespace {

class CheckpointTest : public TextTest {
 protected:
  Config few(std::int64_t steps) const {
    return tiny(data, {"training.global_batch_size=2", fmt::format("training.steps={}", steps), "checkpoint.interval=2",
                       "checkpoint.keep=3"});
  }
};

CheckpointManifest some_manifest() {
  return {.step = 7,
          .samples = 56,
          .tokens = 1792,
          .data_hash = "abc",
          .tokenizer_hash = std::string(32, 'd'),
          .dtype = "float32",
          .model = {.architecture = "llama", .parameters = 99},
          .ranks = 1,
          .files = {{"state-00000-of-00001.h5", 12, std::string(32, 'f')},
                    {"state-00000-of-00001.h5.json", 9, std::string(32, 'd')},
                    {"config.yaml", 7, std::string(32, 'e')}}};
}

TEST(Manifest, SurvivesTheWayThroughJson) {
  const std::string text = to_json(some_manifest());
  EXPECT_EQ(to_json(parse_manifest(text, "m")), text);
  EXPECT_TRUE(holds_all(text, {"56", "1792", "abc", std::string(32, 'd'), "float32", "llama", "99", "config.yaml"}));
  EXPECT_EQ(parse_manifest(text, "m").files.at(0).bytes, 12);
}

TEST(Manifest, NeedNotSayWhoseTokensTheDataAre) {
  CheckpointManifest manifest = some_manifest();
  manifest.tokenizer_hash = "";
  const std::string text = to_json(manifest);
  EXPECT_FALSE(holds(text, "tokenizer"));
  EXPECT_EQ(parse_manifest(text, "m").tokenizer_hash, "");
  manifest.tokenizer_hash = "mine";
  expect_error_holding(ExitCode::checkpoint, {"is not a hash"}, [&] { parse_manifest(to_json(manifest), "m"); });
}

TEST(Manifest, FindsAnyFlippedBit) {
  const CheckpointManifest manifest = some_manifest();
  const std::string text = to_json(manifest);
  for (std::size_t i = 0; i < text.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = text;
      damaged[i] = static_cast<char>(damaged[i] ^ (1 << bit));
      error_of(ExitCode::checkpoint, [&] { parse_manifest(damaged, "m"); });
    }
  }
}

TEST(Manifest, WithCountsThatNoRunHasIsDamagedHoweverWellItIsSealed) {
  const auto refused = [](const std::function<void(CheckpointManifest&)>& change) {
    CheckpointManifest manifest = some_manifest();
    change(manifest);
    return error_of(ExitCode::checkpoint, [&] { parse_manifest(to_json(manifest), "m"); });
  };
  EXPECT_TRUE(holds(refused([](auto& m) { m.step = 0; }), "step 0"));
  // Counts that contradict only the config are detected when the checkpoint is opened (checkpoint_folder.cpp).
  for (const std::int64_t value : {0, 1, 6, 1793}) {
    EXPECT_TRUE(holds(refused([&](auto& m) { m.samples = value; }), "samples")) << value;
  }
  for (const std::int64_t value : {0, 1, 55}) {
    EXPECT_TRUE(holds(refused([&](auto& m) { m.tokens = value; }), "tokens")) << value;
  }
  for (const std::int64_t value : {std::int64_t{0}, std::int64_t{2}, INT64_MAX}) {
    EXPECT_TRUE(holds(refused([&](auto& m) { m.ranks = value; }), "ranks")) << value;
  }
  EXPECT_TRUE(holds(refused([](auto& m) { m.skipped_steps = 8; }), "skipped"));
  EXPECT_TRUE(holds(refused([](auto& m) { m.files[0].name = "state-00001-of-00001.h5"; }), "a file is called"));
  EXPECT_TRUE(holds(refused([](auto& m) { m.files[1].name = "state-00000-of-00001.json"; }), "a file is called"));
  EXPECT_TRUE(holds(refused([](auto& m) { m.files.pop_back(); }), "files"));
}

TEST(Manifest, IsTakenOnlyAsItIsWritten) {
  const CheckpointManifest manifest = some_manifest();
  const std::string text = to_json(manifest), member = "\"step\": 7,";
  parse_manifest(text, "m");
  std::string twice = text;
  twice.insert(text.find(member), "\"step\": 6, ");  // a lenient reader takes the last one, and the hash is correct
  expect_error_holding(ExitCode::checkpoint, {"step appears twice"}, [&] { parse_manifest(twice, "m"); });
  for (const std::string& other : {text + " ", text.substr(0, text.size() - 1), " " + text}) {
    expect_error_holding(ExitCode::checkpoint, {"not written as this program writes it"},
                         [&] { parse_manifest(other, "m"); });
  }
}

TEST(Manifest, OfAnEarlierVersionSaysWhatToDo) {
  std::string text = to_json(some_manifest());
  const std::string version = "\"format_version\": 3";
  text.replace(text.find(version), version.size(), "\"format_version\": 2");
  expect_error_holding(ExitCode::checkpoint,
                       {"has format version 2, but this program reads version 3; export it with the version"},
                       [&] { parse_manifest(text, "m"); });
}

TEST_F(CheckpointTest, KeepsTheLastNAndLeavesNoPartialOnes) {
  run(few(9), "run");
  const CheckpointFolder kept(at("run/checkpoints"));
  EXPECT_EQ(kept.steps(), (std::vector<std::int64_t>{6, 8, 9}));  // the last step is always saved
  EXPECT_EQ(std::distance(fs::directory_iterator(kept.path()), fs::directory_iterator{}), 3);
  const Checkpoint newest = open_checkpoint(at("run"));
  EXPECT_EQ(newest.manifest.step, 9);
  EXPECT_EQ(newest.manifest.samples, 18);
  EXPECT_EQ(newest.manifest.tokens, 18 * 37);
  EXPECT_TRUE(differences(newest.config, few(9)).empty());
}

TEST_F(CheckpointTest, EveryKindOfDamageIsNamed) {
  run(few(2), "run");
  const std::string good = checkpoint("run", 2), bad = at("bad");
  const auto damaged = [&](const std::function<void()>& damage) {
    fs::remove_all(bad);
    fs::copy(good, bad, fs::copy_options::recursive);
    damage();
    return error_of(ExitCode::checkpoint, [&] { open_checkpoint(bad); });
  };
  const std::string state = state_file(bad), manifest = bad + "/manifest.json";
  const std::vector<std::pair<std::function<void()>, std::string>> damages{
      {[&] { fs::remove_all(bad); }, "no such checkpoint"},
      {[&] { fs::remove(manifest); }, "manifest.json"},
      {[&] { std::ofstream{manifest}; }, "manifest.json"},
      {[&] { std::ofstream(manifest) << "[1, 2"; }, "manifest.json"},
      {[&] { fs::remove(state); }, "state-00000-of-00001.h5: is missing"},
      {[&] { fs::resize_file(state, 1000); }, "has 1000 bytes"},
      {[&] { fs::resize_file(state, 0); }, "has 0 bytes"},
      {[&] { fs::remove(state + ".json"); }, "of-00001.h5.json: is missing"},
      {[&] { flip_bit(state + ".json", 40); }, "of-00001.h5.json: has hash"},
      {[&] { flip_bit(bad + "/config.yaml", 40); }, "config.yaml: has hash"}};
  for (const auto& [damage, sentence] : damages) EXPECT_TRUE(holds(damaged(damage), sentence));
  const auto size = static_cast<std::int64_t>(fs::file_size(state_file(good)));
  for (std::int64_t offset = 0; offset < size; offset += size / 37) {
    EXPECT_TRUE(holds(damaged([&] { flip_bit(state, offset); }), "of-00001.h5: has hash"));
  }
}

TEST_F(CheckpointTest, ResumeTakesTheOlderOneIfTheNewestIsDamagedAndFailsIfAllAre) {
  run(few(6), "run");
  const auto whole = losses("run");
  flip_bit(state_file(checkpoint("run", 6)), 5000);
  const Outcome outcome = run(few(8), "run", resumed());
  EXPECT_NE(outcome.logged("trying the previous checkpoint"), "");
  EXPECT_NE(outcome.logged("resuming from " + checkpoint("run", 4)), "");
  EXPECT_EQ(metrics("run").size(), 8u);
  for (const std::int64_t step : saved_steps("run")) flip_bit(state_file(checkpoint("run", step)), 5000);
  const std::string before = content_of(at("run/metrics.jsonl"));
  expect_error(ExitCode::checkpoint, "none of the 3 checkpoints", [&] { run(few(9), "run", resumed()); });
  EXPECT_EQ(content_of(at("run/metrics.jsonl")), before);
}

TEST_F(CheckpointTest, AHalfWrittenOneIsNoCheckpointAndIsSweptAway) {
  run(few(2), "run");
  const std::string half = checkpoint("run", 4) + ".partial-12-0123abcd",
                    gone = checkpoint("run", 4) + ".deleted-9-ffffffff";
  fs::copy(checkpoint("run", 2), half, fs::copy_options::recursive);
  fs::remove(half + "/manifest.json");
  fs::create_directory(gone);
  // Names that a user might choose: this program creates none of them.
  std::vector<std::string> users;
  for (const std::string name : {".partial", ".deleted", ".partial-12-0123abc", ".partial-a-0123abcd", ".superseded"}) {
    users.push_back(checkpoint("run", 4) + name);
  }
  users.push_back(at("run/checkpoints/logs.partial-12-0123abcd"));
  users.push_back(at("run/checkpoints/.writable-logs"));
  for (const std::string& name : users) {
    fs::create_directory(name);
    std::ofstream(name + "/precious") << "mine";
  }
  const Outcome outcome = run(few(6), "run", resumed());
  EXPECT_NE(outcome.logged("resuming from " + checkpoint("run", 2)), "");
  EXPECT_FALSE(fs::exists(half));
  EXPECT_FALSE(fs::exists(gone));
  // Steps 4 and 6 are made and set aside again, twice.
  for (int i = 0; i < 2; ++i) run(few(6), "run", resumed(checkpoint("run", 2)));
  for (const std::string& name : users) EXPECT_EQ(content_of(name + "/precious"), "mine") << name;
  for (const std::string ending : {".superseded-2", ".superseded-3"}) {
    EXPECT_EQ(open_checkpoint(checkpoint("run", 4) + ending).manifest.step, 4);
  }
}

}  // namespace
}  // namespace ringtrain::testing
