// A base of adapters that is a checkpoint of another run: that run deletes its old checkpoints while the adapters are
// trained, and everything must still be able to read them.
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "parallel/shared_error.h"
#include "tests/train/child_process.h"
#include "tests/train/train_fixture.h"
#include "train/evaluation/checkpoint_evaluation.h"
#include "train/models/adapters/adapted_model.h"
#include "train/models/adapters/kept_base.h"
#include "train/models/model_source.h"

namespace ringtrain::testing {
namespace {

class KeptBase : public TrainTest {
 protected:
  void SetUp() override {
    TrainTest::SetUp();
    data_ = write_tokens("text.h5", {.validation_documents = 20});
    run(config(), "base", {}, 4);  // keeps only step 4
  }
  Config config(std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"training.steps=12", "training.global_batch_size=4", "checkpoint.interval=4",
                               "checkpoint.keep=1", "optimizer.lr=0.02"});
    return tiny(data_, more);
  }
  Config adapters() const { return config({"training.steps=4", "lora.rank=3", "lora.targets=[q_proj, down_proj]"}); }
  /// Runs a training as run() does. Returns all its output.
  std::string words_of(const Config& config, const std::string& output, const StartRequest& start) const {
    ::testing::internal::CaptureStderr();
    Outcome outcome;
    const auto problem = caught([&] { outcome = run(config, output, start); });
    std::string words = ::testing::internal::GetCapturedStderr();
    if (problem) throw Error(*problem);
    for (const std::string& line : outcome.logs) words += line + "\n";
    return words;
  }
  /// Continues the run of the base, which then deletes the checkpoint of step 4. Returns its output.
  std::string go_on() const { return words_of(config(), "base", resumed()); }
  static bool has(const std::string& words, const std::string& part) { return words.find(part) != std::string::npos; }
  double nll(const std::string& model) const {
    EvaluationOptions options;
    options.checkpoint = model;
    options.data = data_;
    options.request = {.context_lengths = {32}, .target_tokens = 8, .target_blocks = 8, .part = ScoredPart::whole};
    options.dtype = "float64";
    return evaluate_on_threads(options).results.at(0).nll.value;
  }
  ChildResult verify(const std::string& path) const {
    return run_child("train", {"--verify-checkpoint", path}, folder);
  }
  static std::uint64_t inode(const std::string& path) {
    struct stat status {};
    EXPECT_EQ(::stat(path.c_str(), &status), 0) << path;
    return status.st_ino;
  }

  bool is_other_file_system(const std::string& path) const {
    struct stat here {
    }, there{};
    return ::stat(path.c_str(), &there) == 0 && ::stat(folder.c_str(), &here) == 0 && here.st_dev != there.st_dev;
  }

  std::string data_;
};

TEST_F(KeptBase, OutlivesTheRunThatDeletesIt) {
  run(adapters(), "lora", from(at("base")));
  const std::string of_run = checkpoint("base", 4), kept = kept_base_path(at("lora"), of_run);
  const double before = nll(at("lora"));
  for (const std::string name :
       {"/manifest.json", "/config.yaml", "/state-00000-of-00001.h5", "/state-00000-of-00001.h5.json"}) {
    EXPECT_EQ(inode(kept + name), inode(of_run + name)) << name << " was copied";
  }
  EXPECT_FALSE(has(go_on(), "warning"));
  ASSERT_FALSE(fs::exists(of_run));
  EXPECT_EQ(nll(at("lora")), before);
  const ChildResult good = verify("lora");
  EXPECT_EQ(good.code, 0) << good.err;
  Config longer = adapters();
  longer.training.steps = 8;
  EXPECT_EQ(run(longer, "lora", resumed()).code, ExitCode::done);  // it finds the base where it is kept
  // Adapters that continue from these have the same base, and also keep it.
  run(adapters(), "again", from(at("lora")));
  EXPECT_EQ(inode(kept_base_path(at("again"), of_run) + "/manifest.json"), inode(kept + "/manifest.json"));
  // The whole project moves, and all its absolute paths change.
  fs::create_directory(at("elsewhere"));
  fs::rename(at("lora"), at("elsewhere/lora"));
  EXPECT_EQ(nll(at("elsewhere/lora")), nll(checkpoint("elsewhere/lora", 8)));

  fs::remove_all(at("elsewhere/lora/base"));
  const ChildResult gone = verify("elsewhere/lora");
  EXPECT_EQ(gone.code, 4);
  EXPECT_NE(gone.err.find("the base of its adapters"), std::string::npos) << gone.err;
}

TEST_F(KeptBase, IsKeptOnceUnderTheNameThatTheRunWasGiven) {
  fs::create_directory_symlink(checkpoint("base", 4), at("current"));
  run(adapters(), "lora", from(at("current") + "/."));
  Config longer = adapters();
  longer.training.steps = 8;
  run(longer, "lora", resumed());
  EXPECT_EQ(list_directory(at("lora/base"), ExitCode::checkpoint), std::vector<std::string>{"current"});
  const double before = nll(at("lora"));
  fs::remove(at("current"));
  EXPECT_EQ(nll(at("lora")), before);
}

TEST_F(KeptBase, IsHeldUntilItIsKept) {
  TrainOptions options;
  options.config = adapters();
  options.output = at("lora");
  options.start = from(at("base"));
  const Log silent = [](const std::string&) {};
  const ringtrain::Run prepared = prepare_run(options, silent);
  EXPECT_TRUE(has(go_on(), "is reading it"));  // before the adapters' run has a folder
  EXPECT_EQ(train(prepared, silent), ExitCode::done);
  EXPECT_TRUE(fs::exists(kept_base_path(at("lora"), checkpoint("base", 4)) + "/manifest.json"));
}

/// A folder on another file system, to which files of the test's folder cannot be linked.
class ElsewhereFolder {
 public:
  ElsewhereFolder() {
    std::string name = "/dev/shm/ringtrain-base-XXXXXX";
    if (::mkdtemp(name.data()) != nullptr) path = name;
  }
  ~ElsewhereFolder() {
    std::error_code error;
    if (!path.empty()) fs::remove_all(path, error);
  }
  std::string path;
};

TEST_F(KeptBase, IsCopiedWhereItCannotBeLinked) {
  const ElsewhereFolder elsewhere;
  if (!is_other_file_system(elsewhere.path)) GTEST_SKIP() << "/dev/shm is no other file system";
  fs::create_symlink(elsewhere.path, at("lora"));
  EXPECT_FALSE(has(words_of(adapters(), "lora", from(at("base"))), "warning"));
  const std::string of_run = checkpoint("base", 4), kept = kept_base_path(at("lora"), of_run);
  EXPECT_TRUE(fs::exists(kept + "/manifest.json"));
  const double before = nll(at("lora"));
  EXPECT_FALSE(has(go_on(), "warning"));
  ASSERT_FALSE(fs::exists(of_run));
  EXPECT_EQ(nll(at("lora")), before);

  fs::remove_all(at("lora/base"));
  Config longer = adapters();
  longer.training.steps = 12;
  expect_error(ExitCode::checkpoint, of_run + ", which does not exist", [&] { run(longer, "lora", resumed()); });
}

TEST_F(KeptBase, ThatDoesNotFitLeavesNothing) {
  const ElsewhereFolder elsewhere;
  if (!is_other_file_system(elsewhere.path)) GTEST_SKIP() << "/dev/shm is no other file system";
  fs::create_symlink(elsewhere.path, at("lora"));
  std::ofstream(at("lora.yaml")) << to_yaml(adapters());
  const std::vector<std::string> arguments{"--config", "lora.yaml", "--output", "lora", "--init-from", "base"};
  const ChildResult result = run_child("train", arguments, folder, [] { limit(RLIMIT_FSIZE, 30000); });
  expect_end(result, 4, {"cannot be copied to"});
  EXPECT_TRUE(fs::is_empty(at("lora/base")));
}

TEST_F(KeptBase, OfAFolderIsVerifiedByItsHash) {
  const std::string base = at("model");
  ASSERT_EQ(run_child("export", {"--checkpoint", "base", "--output", "model"}, folder).code, 0);
  run(adapters(), "lora", from(base));
  EXPECT_FALSE(fs::exists(at("lora/base")));  // nobody deletes a Hugging Face folder
  EXPECT_EQ(verify("lora").code, 0);

  flip_bit(base + "/model.safetensors", -4);
  EXPECT_EQ(verify("lora").code, 4);

  fs::remove_all(base);  // the same model in another type, of half the size
  ASSERT_EQ(run_child("export", {"--checkpoint", "base", "--output", "model", "--dtype", "bfloat16"}, folder).code, 0);
  EXPECT_EQ(verify("lora").code, 4);
  fs::remove_all(base);
  EXPECT_EQ(verify("lora").code, 4);
}

}  // namespace
}  // namespace ringtrain::testing
