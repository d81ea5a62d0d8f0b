// A model's folder may be anyone's: a link in it to a file elsewhere is neither read nor copied.
#include <atomic>
#include <fstream>
#include <thread>

#include "framework/storage/folder_file.h"
#include "tests/support/folder_test.h"
#include "tests/support/paths.h"
#include "tests/train/child_process.h"
#include "tests/train/train_fixture.h"
#include "train/models/export_model.h"
#include "train/models/model_source.h"

namespace ringtrain::testing {
namespace {

class FolderLinks : public TrainTest {
 protected:
  void SetUp() override {
    TrainTest::SetUp();
    fs::create_directory(at("elsewhere"));
    std::ofstream(at("elsewhere/secret")) << "{\"secret\": \"c8a1\"}";
    fs::copy(source_folder() + "/tests/models/folders/llama", at("model"));
  }
  /// Replaces a file of the model by a link, calls body, and restores the file.
  void with_link(const std::string& name, const std::string& target, const std::function<void()>& body) const {
    const std::string path = at("model/" + name);
    const bool was = fs::exists(path);
    if (was) fs::rename(path, at("kept"));
    fs::create_symlink(target, path);
    body();
    fs::remove(path);
    if (was) fs::rename(at("kept"), path);
  }
  /// Expects a program to name the link and its target, and to leave nothing at `output`.
  void expect_refused(const std::string& program, const std::vector<std::string>& arguments, int code,
                      const std::string& name, const std::string& output) const {
    const ChildResult result = run_child(program, arguments, folder);
    EXPECT_EQ(result.code, code) << result.err;
    const std::string sentence = fmt::format("model/{}: is a link to {}/elsewhere/secret, outside the link's folder",
                                             name, fs::canonical(folder).string());
    EXPECT_NE(result.err.find(sentence), std::string::npos) << result.err;
    EXPECT_EQ((result.out + result.err).find("c8a1"), std::string::npos) << result.out << result.err;
    EXPECT_FALSE(fs::exists(at(output))) << program;
  }
  const std::vector<std::string> export_model_to_out{"--checkpoint", "model", "--output", "out"};
};

TEST_F(FolderLinks, WhatLeadsOutOfAModelsFolderIsNeitherReadNorCopied) {
  for (const std::string name :
       {"generation_config.json", "tokenizer.json", "tokenizer_config.json", "tokenizer.model", "tekken.json",
        "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt", "chat_template.jinja",
        "chat_template.json", "config.json", "model.safetensors"}) {
    with_link(name, "../elsewhere/secret", [&] { expect_refused("export", export_model_to_out, 4, name, "out"); });
  }
  fs::rename(at("model/model.safetensors"), at("aside"));
  with_link("model.safetensors.index.json", "../elsewhere/secret",
            [&] { expect_refused("export", export_model_to_out, 4, "model.safetensors.index.json", "out"); });
  fs::rename(at("aside"), at("model/model.safetensors"));
  // By an absolute path, through another link of the folder, and through one to the parent folder.
  const std::string name = "tokenizer.json";
  with_link(name, at("elsewhere/secret"), [&] { expect_refused("export", export_model_to_out, 4, name, "out"); });
  fs::create_symlink("../elsewhere/secret", at("model/hop"));
  fs::create_symlink("..", at("model/above"));
  with_link(name, "hop", [&] { expect_refused("export", export_model_to_out, 4, name, "out"); });
  with_link(name, "above/elsewhere/secret", [&] { expect_refused("export", export_model_to_out, 4, name, "out"); });
  with_link(name, "../elsewhere/secret", [&] {
    fs::create_directory(at("text"));
    std::ofstream(at("text/a")) << "some text";
    expect_refused("prepare", {"--input", "text", "--tokenizer", "model", "--output", "tokens.h5"}, 3, name,
                   "tokens.h5");
    write_tokens("text.h5", {.vocab_size = 48});
    std::ofstream(at("run.yaml")) << "model: {from: " << source_folder()
                                  << "/tests/models/folders/llama, from_scratch: true}\n"
                                  << "data: {train: text.h5}\n"
                                     "training: {seq_len: 16, global_batch_size: 2, steps: 1}\n";
    expect_refused("train", {"--config", "run.yaml", "--init-from", "model", "--output", "run"}, 4, name, "run");
  });
}

TEST_F(FolderLinks, ATokenizerKeptByARunIsNotFollowedElsewhere) {
  write_tokens("text.h5", {});
  run(tiny(at("text.h5"), {"training.steps=1"}), "run");
  fs::create_directory(at("run/tokenizer"));
  fs::create_symlink("../../elsewhere/secret", at("run/tokenizer/tokenizer.json"));
  expect_error(ExitCode::checkpoint, "outside the link's folder",
               [&] { export_model(open_model(at("run")), {.output = at("out")}); });
  EXPECT_FALSE(fs::exists(at("out")));
}

TEST_F(FolderLinks, WithinTheFolderAndToTheBlobsOfTheSameModelTheyAreFollowed) {
  std::ofstream(at("model/templates")) << "{{ messages }}";
  with_link("chat_template.jinja", "templates", [&] {
    fs::create_directory_symlink("model", at("named"));  // the folder itself may be reached through a link
    export_model(open_model(at("named")), {.output = at("one")});
  });
  EXPECT_EQ(content_of(at("one/chat_template.jinja")), "{{ messages }}");
  // The cache of the hub.
  const std::string snapshot = at("hub/models--x--y/snapshots/1");
  for (const char* model : {"models--x--y", "models--x--z"}) fs::create_directories(at("hub") + "/" + model + "/blobs");
  fs::create_directories(snapshot);
  for (const auto& entry : fs::directory_iterator(at("model"))) {
    const std::string name = entry.path().filename().string();
    fs::rename(entry.path(), at("hub/models--x--y/blobs/hash-of-" + name));
    fs::create_symlink("../../blobs/hash-of-" + name, snapshot + "/" + name);
  }
  export_model(open_model(snapshot), {.output = at("two")});
  EXPECT_EQ(content_of(at("two/model.safetensors")), content_of(at("one/model.safetensors")));
  const auto refused = [&](const std::string& target) {
    fs::remove(snapshot + "/generation_config.json");
    fs::create_symlink(target, snapshot + "/generation_config.json");
    return error_of(ExitCode::checkpoint, [&] { open_model(snapshot); });
  };
  fs::copy(at("elsewhere/secret"), at("hub/models--x--z/blobs/hash"));
  EXPECT_NE(refused("../../../models--x--z/blobs/hash").find("models--x--z/blobs/hash"), std::string::npos);
  fs::create_symlink("../../../elsewhere/secret", at("hub/models--x--y/blobs/link"));
  EXPECT_NE(refused("../../blobs/link").find("elsewhere/secret"), std::string::npos);
  // The same for a folder of blobs that is itself a link to another folder.
  fs::rename(at("hub/models--x--y/blobs"), at("moved"));
  fs::create_directory_symlink(at("moved"), at("hub/models--x--y/blobs"));
  expect_error(ExitCode::checkpoint, "moved/", [&] { open_model(snapshot); });
}

TEST_F(FolderLinks, ALinkThatChangesMeanwhileShowsNothing) {
  std::ofstream(at("model/own")) << "own";
  std::atomic<bool> done{false};
  std::thread swapper([&] {
    for (bool out = true; !done; out = !out) {
      fs::create_symlink(out ? "../elsewhere/secret" : "own", at("model/next"));
      fs::rename(at("model/next"), at("model/link"));
    }
  });
  int read = 0, refused = 0;
  for (int i = 0; i < 3000; ++i) {
    try {
      EXPECT_EQ(read_in_folder(at("model"), "link", ExitCode::checkpoint), "own");
      ++read;
    } catch (const Error&) {
      ++refused;
    }
  }
  done = true;
  swapper.join();
  RecordProperty("read", read);
  RecordProperty("refused", refused);
}

}  // namespace
}  // namespace ringtrain::testing
