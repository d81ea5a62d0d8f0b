// Checkpoints on disk: what a manifest finds, what a resume does with damage, what a failed save leaves.
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "framework/config/read_config.h"
#include "framework/storage/files.h"
#include "tests/train/train_fixture.h"
#include "train/checkpoint/checkpoint_folder.h"
#include "train/checkpoint/checkpoint_manifest.h"

namespace ringtrain::testing {
namespace {

namespace fs = std::filesystem;

void flip_bit(const std::string& path, std::int64_t offset) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(offset);
  const int byte = file.get();
  file.seekp(offset);
  file.put(static_cast<char>(byte ^ 1));
}

class CheckpointTest : public TrainTest {
 protected:
  void SetUp() override {
    TrainTest::SetUp();
    data = write_tokens("text.h5", {});
  }
  Config few(std::int64_t steps) const {
    return tiny(data, {"training.global_batch_size=2", fmt::format("training.steps={}", steps), "checkpoint.interval=2",
                       "checkpoint.keep=3"});
  }
  std::string data;
  const StartRequest resume{.resume = true, .resume_path = "", .init_from = ""};
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
  const CheckpointManifest manifest = some_manifest();
  const CheckpointManifest back = parse_manifest(to_json(manifest), "m");
  EXPECT_EQ(back.step, 7);
  EXPECT_EQ(back.samples, 56);
  EXPECT_EQ(back.tokens, 1792);
  EXPECT_EQ(back.data_hash, "abc");
  EXPECT_EQ(back.tokenizer_hash, std::string(32, 'd'));
  EXPECT_EQ(back.dtype, "float32");
  EXPECT_EQ(back.model.architecture, "llama");
  EXPECT_EQ(back.model.parameters, 99);
  ASSERT_EQ(back.files.size(), 3u);
  EXPECT_EQ(back.files[0].bytes, 12);
}

TEST(Manifest, NeedNotSayWhoseTokensTheDataAre) {
  CheckpointManifest manifest = some_manifest();
  manifest.tokenizer_hash = "";
  const std::string text = to_json(manifest);
  EXPECT_EQ(text.find("tokenizer"), std::string::npos);
  EXPECT_EQ(parse_manifest(text, "m").tokenizer_hash, "");
  manifest.tokenizer_hash = "mine";
  EXPECT_NE(error_of(ExitCode::checkpoint, [&] { parse_manifest(to_json(manifest), "m"); }).find("is no hash"),
            std::string::npos);
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
  EXPECT_NE(refused([](auto& m) { m.step = 0; }).find("step 0"), std::string::npos);
  // Counts that only the config contradicts are found where the checkpoint is opened (checkpoint_folder.cpp).
  for (const std::int64_t value : {0, 1, 6, 1793}) {
    EXPECT_NE(refused([&](auto& m) { m.samples = value; }).find("samples"), std::string::npos) << value;
  }
  for (const std::int64_t value : {0, 1, 55}) {
    EXPECT_NE(refused([&](auto& m) { m.tokens = value; }).find("tokens"), std::string::npos) << value;
  }
  for (const std::int64_t value : {std::int64_t{0}, std::int64_t{2}, INT64_MAX}) {
    EXPECT_NE(refused([&](auto& m) { m.ranks = value; }).find("ranks"), std::string::npos) << value;
  }
  EXPECT_NE(refused([](auto& m) { m.skipped_steps = 8; }).find("skipped"), std::string::npos);
  EXPECT_NE(refused([](auto& m) { m.files[0].name = "state-00001-of-00001.h5"; }).find("a file is called"),
            std::string::npos);
  EXPECT_NE(refused([](auto& m) { m.files[1].name = "state-00000-of-00001.json"; }).find("a file is called"),
            std::string::npos);
  EXPECT_NE(refused([](auto& m) { m.files.pop_back(); }).find("files"), std::string::npos);
}

TEST(Manifest, IsTakenOnlyAsItIsWritten) {
  const CheckpointManifest manifest = some_manifest();
  const std::string text = to_json(manifest), member = "\"step\": 7,";
  parse_manifest(text, "m");
  std::string twice = text;
  twice.insert(text.find(member), "\"step\": 6, ");  // a lenient reader takes the last one, and the hash is right
  EXPECT_NE(error_of(ExitCode::checkpoint, [&] { parse_manifest(twice, "m"); }).find("step stands there twice"),
            std::string::npos);
  for (const std::string& other : {text + " ", text.substr(0, text.size() - 1), " " + text}) {
    const std::string sentence = error_of(ExitCode::checkpoint, [&] { parse_manifest(other, "m"); });
    EXPECT_NE(sentence.find("not written as this program writes it"), std::string::npos) << sentence;
  }
}

TEST(Manifest, OfAnEarlierVersionSaysWhatToDo) {
  std::string text = to_json(some_manifest());
  const std::string version = "\"format_version\": 3";
  text.replace(text.find(version), version.size(), "\"format_version\": 2");
  const std::string sentence = error_of(ExitCode::checkpoint, [&] { parse_manifest(text, "m"); });
  EXPECT_NE(sentence.find("has format version 2, but this program reads version 3; export it with the version"),
            std::string::npos)
      << sentence;
}

TEST_F(CheckpointTest, KeepsTheLastNAndLeavesNoPartialOnes) {
  run(few(9), "run");
  const CheckpointFolder kept(at("run") + "/checkpoints");
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
  EXPECT_NE(damaged([&] { fs::remove_all(bad); }).find("no such checkpoint"), std::string::npos);
  EXPECT_NE(damaged([&] { fs::remove(bad + "/manifest.json"); }).find("manifest.json"), std::string::npos);
  EXPECT_NE(damaged([&] { fs::remove(state_file(bad)); }).find("state-00000-of-00001.h5: is missing"),
            std::string::npos);
  EXPECT_NE(damaged([&] { fs::resize_file(state_file(bad), 1000); }).find("has 1000 bytes"), std::string::npos);
  EXPECT_NE(damaged([&] { fs::resize_file(state_file(bad), 0); }).find("has 0 bytes"), std::string::npos);
  EXPECT_NE(damaged([&] { fs::remove(state_file(bad) + ".json"); }).find("of-00001.h5.json: is missing"),
            std::string::npos);
  EXPECT_NE(damaged([&] { flip_bit(state_file(bad) + ".json", 40); }).find("of-00001.h5.json: has hash"),
            std::string::npos);
  EXPECT_NE(damaged([&] { flip_bit(bad + "/config.yaml", 40); }).find("config.yaml: has hash"), std::string::npos);
  EXPECT_NE(damaged([&] { std::ofstream(bad + "/manifest.json"); }).find("manifest.json"), std::string::npos);
  EXPECT_NE(damaged([&] { std::ofstream(bad + "/manifest.json") << "[1, 2"; }).find("manifest.json"),
            std::string::npos);
  const auto size = static_cast<std::int64_t>(fs::file_size(state_file(good)));
  for (std::int64_t offset = 0; offset < size; offset += size / 37) {
    EXPECT_NE(damaged([&] { flip_bit(state_file(bad), offset); }).find("of-00001.h5: has hash"), std::string::npos);
  }
}

TEST_F(CheckpointTest, ResumeTakesTheOlderOneIfTheNewestIsDamagedAndFailsIfAllAre) {
  run(few(6), "run");
  const auto whole = losses("run");
  flip_bit(state_file(checkpoint("run", 6)), 5000);
  const Outcome outcome = run(few(8), "run", resume);
  EXPECT_NE(outcome.logged("trying the one before it"), "");
  EXPECT_NE(outcome.logged("resuming from " + checkpoint("run", 4)), "");
  EXPECT_EQ(metrics("run").size(), 8u);
  for (const std::int64_t step : CheckpointFolder(at("run") + "/checkpoints").steps()) {
    flip_bit(state_file(checkpoint("run", step)), 5000);
  }
  const std::string before = content_of(at("run") + "/metrics.jsonl");
  EXPECT_NE(error_of(ExitCode::checkpoint, [&] { run(few(9), "run", resume); }).find("none of the 3 checkpoints"),
            std::string::npos);
  EXPECT_EQ(content_of(at("run") + "/metrics.jsonl"), before);
}

TEST_F(CheckpointTest, AHalfWrittenOneIsNoCheckpointAndIsSweptAway) {
  run(few(2), "run");
  const std::string half = checkpoint("run", 4) + ".partial-12-0123abcd",
                    gone = checkpoint("run", 4) + ".deleted-9-ffffffff";
  fs::copy(checkpoint("run", 2), half, fs::copy_options::recursive);
  fs::remove(half + "/manifest.json");
  fs::create_directory(gone);
  // What a user might call his own: none of these names is one that this program gives.
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
  const Outcome outcome = run(few(6), "run", resume);
  EXPECT_NE(outcome.logged("resuming from " + checkpoint("run", 2)), "");
  EXPECT_FALSE(fs::exists(half));
  EXPECT_FALSE(fs::exists(gone));
  // Steps 4 and 6 are made and set aside again, twice.
  for (int i = 0; i < 2; ++i) {
    run(few(6), "run", {.resume = true, .resume_path = checkpoint("run", 2), .init_from = ""});
  }
  for (const std::string& name : users) EXPECT_EQ(content_of(name + "/precious"), "mine") << name;
  for (const std::string ending : {".superseded-2", ".superseded-3"}) {
    EXPECT_EQ(open_checkpoint(checkpoint("run", 4) + ending).manifest.step, 4);
  }
}

TEST_F(CheckpointTest, AFailedSaveKeepsThePreviousOneAndNothingElse) {
  run(few(2), "run");
  const std::string before = content_of(state_file(checkpoint("run", 2)));
  const auto size = static_cast<rlim_t>(before.size());
  // A file may not grow beyond half of a state: what a full disk does to it.
  rlimit old{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small{size / 2, old.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  for (const auto* mesh : {"mesh.data=1", "mesh.data=2"}) {  // another rank waits in the gather
    Config config = few(6);
    if (std::string_view(mesh) == "mesh.data=2") config.mesh.data = 2;
    const std::string sentence = error_of(ExitCode::checkpoint, [&] { run(config, "run", resume); });
    EXPECT_NE(sentence.find("state-00000"), std::string::npos) << sentence;
  }
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  std::signal(SIGXFSZ, old_handler);
  EXPECT_EQ(content_of(state_file(checkpoint("run", 2))), before);
  const std::string checkpoints = at("run") + "/checkpoints";
  EXPECT_EQ(std::distance(fs::directory_iterator(checkpoints), fs::directory_iterator{}), 1);
  EXPECT_EQ(open_checkpoint(at("run")).manifest.step, 2);
  run(few(6), "run", resume);  // and the run goes on
  EXPECT_EQ(open_checkpoint(at("run")).manifest.step, 6);
}

TEST_F(CheckpointTest, TheStateOfAnotherModelIsRefusedByTensorAndShape) {
  run(few(2), "run");
  Config wider = few(2);
  wider.model.intermediate_size = 32;
  const std::string sentence = error_of(ExitCode::checkpoint, [&] {
    run(wider, "other", {.resume = false, .resume_path = "", .init_from = checkpoint("run", 2)});
  });
  EXPECT_NE(sentence.find("model.intermediate_size was 24, is 32"), std::string::npos) << sentence;
}

}  // namespace
}  // namespace ringtrain::testing
