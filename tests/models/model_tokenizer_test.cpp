// A model keeps its own tokens, and its tokenizer goes with it: from a folder to the run that begins with it, to
// generated text, and to an export. Tested through the programs.
#include <fstream>
#include <regex>

#include "data/tokenizer/tokenizer.h"
#include "tests/support/paths.h"
#include "tests/train/child_process.h"
#include "tests/train/train_fixture.h"
#include "train/checkpoint/checkpoint_manifest.h"

namespace ringtrain::testing {
namespace {

using nlohmann::json;

class ModelTokenizer : public TrainTest {
 protected:
  void SetUp() override {
    TrainTest::SetUp();
    fs::copy(source_folder() + "/tests/models/folders/llama", at("model"));
    write_tokenizer(at("model/tokenizer.json"), {{"\u2581", "a"}});
    write_tokenizer(at("other.json"), {{"a", "b"}});
    std::ofstream(at("model/chat_template.jinja")) << "{{ messages }}";
    std::string text;
    for (int i = 0; i < 400; ++i) text += i % 7 == 3 ? "ab ab " : i % 5 == 2 ? "bab " : "a ";
    fs::create_directory(at("texts"));
    for (const char* name : {"one", "two", "three"}) std::ofstream(at("texts") + "/" + name) << text << name[0] % 2;
    prepare("model", "own.h5");
    prepare("other.json", "other.h5");
    prepare("bytes", "bytes.h5");
    std::ofstream(at("run.yaml")) << "model: {from: model}\n"
                                     "data: {train: own.h5}\n"
                                     "training: {seq_len: 16, global_batch_size: 2, steps: 2, dtype: float64}\n"
                                     "lr_scheduler: {warmup_steps: 1}\n";
  }

  /// Writes a tokenizer of a few characters, by SentencePiece's rules. Its vocabulary does not depend on the merges.
  static void write_tokenizer(const std::string& path, const std::vector<std::pair<std::string, std::string>>& merges) {
    json model{{"type", "BPE"}, {"unk_token", "<unk>"}, {"fuse_unk", true}, {"merges", json::array()}};
    std::int64_t id = 0;
    for (const char* token : {"<unk>", "</s>", "\u2581", "a", "b", "\u2581a", "ab"}) model["vocab"][token] = id++;
    for (const auto& [left, right] : merges) model["merges"].push_back(left + " " + right);
    json added = json::array();
    for (const char* token : {"<unk>", "</s>"}) {
      added.push_back({{"id", model["vocab"][token]}, {"content", token}, {"special", true}, {"normalized", false}});
    }
    const json metaspace{{"type", "Metaspace"}, {"replacement", "\u2581"}, {"prepend_scheme", "first"}};
    std::ofstream(path) << json{
        {"version", "1.0"},
        {"added_tokens", added},
        {"pre_tokenizer", metaspace},
        {"decoder", metaspace},
        {"model", model}}.dump();
  }
  /// Removes the end of a text from the model's files: transformers does not use the tokenizer's own end, either.
  void forget_ends() const {
    json config = json::parse(content_of(at("model/config.json")));
    config["eos_token_id"] = nullptr;
    std::ofstream(at("model/config.json")) << config.dump();
    fs::remove(at("model/generation_config.json"));
  }
  void prepare(const std::string& tokenizer, const std::string& output) const {
    const ChildResult result =
        run_child("prepare", {"--input", "texts", "--tokenizer", tokenizer, "--output", output}, folder);
    ASSERT_EQ(result.code, 0) << result.err;
  }
  ChildResult evaluate(const std::string& model, const std::string& data) const {
    return run_child("evaluate",
                     {"--checkpoint", model, "--data", data, "--context-lengths", "16", "--target-tokens", "8",
                      "--target-blocks", "2"},
                     folder);
  }
  ChildResult train(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments{"--config", "run.yaml", "--output", "run"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_child("train", arguments, folder);
  }
  static void expect_code(const ChildResult& result, int code, const std::vector<std::string>& parts = {}) {
    EXPECT_EQ(result.code, code) << result.err;
    for (const std::string& part : parts) EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
  }
};

TEST_F(ModelTokenizer, AFolderRefusesTheTokensOfAnotherTokenizer) {
  expect_code(evaluate("model", "own.h5"), 0);
  expect_code(evaluate("model", "other.h5"), 3,
              {"other.h5 has tokens of another tokenizer than model", "prepare --tokenizer model"});
  expect_code(evaluate("model", "bytes.h5"), 3, {"bytes.h5 has token ids up to 256, but"});
  expect_code(train({"--init-from", "model", "--set", "data.train=other.h5"}), 3, {"tokens of another tokenizer"});
  EXPECT_FALSE(fs::exists(at("run")));
  expect_code(train({"--init-from", "model", "--set", "data.validation=other.h5"}), 3, {"different tokenizers"});
}

TEST_F(ModelTokenizer, ARunKeepsToItsTokensAndCarriesTheTokenizerOn) {
  std::ofstream(at("own.h5.tokenizer/chat_template.jinja")) << "{{ another }}";  // the one that rendered conversations
  expect_code(train({"--init-from", "model", "--stop-after", "1"}), 0);
  EXPECT_EQ(content_of(at("run/tokenizer/tokenizer.json")), content_of(at("model/tokenizer.json")));
  const auto own = load_tokenizer(at("model"));
  EXPECT_EQ(read_checkpoint_manifest(checkpoint("run", 1)).tokenizer_hash, own->identity());
  fs::rename(at("model"), at("elsewhere"));  // the run no longer needs it
  std::ofstream(at("run.yaml")) << content_of(at("run/config.yaml"));
  expect_code(train({"--resume"}), 0);
  expect_code(evaluate("run", "own.h5"), 0);
  expect_code(evaluate("run", "other.h5"), 3, {"other.h5 has tokens of another tokenizer than run"});
  expect_code(train({"--resume", "--set", "data.train=other.h5"}), 4, {"the hash of data.train's tokens was"});

  const std::vector<std::string> prompt{"--checkpoint", "run", "--prompt", "ab a", "--max-new-tokens", "4"};
  expect_code(run_child("generate", prompt, folder), 0, {"prompt: 3 tokens in "});
  std::vector<std::string> with_other = prompt;
  with_other.insert(with_other.end(), {"--tokenizer", "other.json"});
  expect_code(run_child("generate", with_other, folder), 3, {"run", "another tokenizer than other.json"});

  const ChildResult exported = run_child("export", {"--checkpoint", "run", "--output", "out"}, folder);
  expect_code(exported, 0);
  for (const char* name : {"tokenizer.json", "chat_template.jinja"}) {
    EXPECT_EQ(content_of(at("out/") + name), content_of(at("own.h5.tokenizer/") + name)) << name;
    EXPECT_NE(exported.out.find(name), std::string::npos) << exported.out;
  }
  // The model's own end, and that of the documents on which it was trained.
  json generation = json::parse(content_of(at("elsewhere/generation_config.json")));
  generation["eos_token_id"] = {47, 1};
  generation["bos_token_id"] = nullptr;
  EXPECT_EQ(json::parse(content_of(at("out/generation_config.json"))), generation);
  EXPECT_EQ(json::parse(content_of(at("out/config.json")))["eos_token_id"], json({47, 1}));
  EXPECT_EQ(json::parse(content_of(at("out/tokenizer_config.json")))["tokenizer_class"], "PreTrainedTokenizerFast");
  expect_code(evaluate("out", "other.h5"), 3, {"tokens of another tokenizer"});

  std::ofstream(at("run.yaml")) << content_of(at("run/config.yaml"));  // a second run from the first one's weights
  expect_code(run_child("train", {"--config", "run.yaml", "--output", "second", "--init-from", "run"}, folder), 0);
  EXPECT_EQ(content_of(at("second/tokenizer/tokenizer.json")), content_of(at("elsewhere/tokenizer.json")));
}

TEST_F(ModelTokenizer, AModelHasOneName) {
  std::ofstream(at("bare.yaml")) << "data: {train: own.h5}\n"
                                    "training: {seq_len: 16, epochs: 0.1, global_batch_size: 2}\n";
  fs::copy(at("model"), at("other"));
  const auto planned = [&](const std::string& config, const std::vector<std::string>& more) {
    std::vector<std::string> words{"--config", config, "--output", "run", "--dry-run"};
    words.insert(words.end(), more.begin(), more.end());
    return run_child("train", words, folder);
  };
  expect_code(planned("run.yaml", {"--init-from", "./model"}), 0, {"starting with the weights of ./model"});
  expect_code(planned("run.yaml", {"--init-from", "other"}), 2, {"model.from is model, but --init-from is other"});
  expect_code(planned("run.yaml", {"--init-from", "other", "--set", "model.from_scratch=true"}), 0,
              {"starting with the weights of other"});
  // Without a section model, --init-from also gives the sizes, and without a model the data give the vocabulary.
  const ChildResult named = planned("bare.yaml", {"--init-from", "model"});
  expect_code(named, 0, {"starting with the weights of model"});
  EXPECT_NE(named.out.find("\n  vocab_size: 48  #"), std::string::npos) << named.out;
  const ChildResult bare = planned("bare.yaml", {});
  expect_code(bare, 0);
  EXPECT_NE(bare.out.find("\n  vocab_size: 7  #"), std::string::npos) << bare.out;
  EXPECT_TRUE(std::regex_search(named.out, std::regex("\ndata: .* steps of 2 sequences: 0\\.1[0-9]? epochs")))
      << named.out;  // rounded up to whole steps
  // A plan only needs sizes, and a run reports what is missing.
  fs::remove(at("other/model.safetensors"));
  expect_code(planned("bare.yaml", {"--init-from", "other"}), 0, {"other has no weights, which the run will need"});
  expect_code(run_child("train", {"--config", "bare.yaml", "--output", "run", "--init-from", "other"}, folder), 4,
              {"other", "safetensors"});
}

TEST_F(ModelTokenizer, ARunFromNothingKeepsTheTokenizerOfItsData) {
  fs::rename(at("model/tokenizer.json"), at("model/away.json"));  // the tokenizer next to the data is used
  expect_code(train({"--set", "model.from_scratch=true"}), 0);
  EXPECT_EQ(content_of(at("run/tokenizer/tokenizer.json")), content_of(at("model/away.json")));
  EXPECT_EQ(content_of(at("run/tokenizer/chat_template.jinja")), "{{ messages }}");
  const std::vector<std::string> prompt{"--checkpoint", "run", "--prompt", "ab", "--max-new-tokens", "2"};
  expect_code(run_child("generate", prompt, folder), 0);
  expect_code(run_child("export", {"--checkpoint", "run", "--output", "out"}, folder), 0);
  EXPECT_EQ(json::parse(content_of(at("out/config.json")))["eos_token_id"], 1);
  EXPECT_EQ(read_tokenizer_identity(at("out")), read_tokenizer_identity(at("model/away.json")));
}

TEST_F(ModelTokenizer, AFileOfAnotherTokenizerNextToTheDataIsNotKept) {
  fs::copy(at("other.json"), at("own.h5.tokenizer/tokenizer.json"), fs::copy_options::overwrite_existing);
  const ChildResult trained = train({"--set", "model.from_scratch=true"});
  expect_code(trained, 0);
  EXPECT_NE((trained.out + trained.err).find("own.h5.tokenizer contains another tokenizer"), std::string::npos);
  EXPECT_FALSE(fs::exists(at("run/tokenizer/tokenizer.json")));
}

TEST_F(ModelTokenizer, AByteModelHasATokenizerJson) {
  EXPECT_FALSE(fs::exists(at("bytes.h5.tokenizer")));
  std::ofstream(at("run.yaml")) << "model: {hidden_size: 16, num_attention_heads: 2, intermediate_size: 16}\n"
                                   "data: {train: bytes.h5}\n"
                                   "training: {seq_len: 16, steps: 1}\n";
  expect_code(train({}), 0);
  expect_code(run_child("export", {"--checkpoint", "run", "--output", "out"}, folder), 0);
  const auto bytes = load_tokenizer(at("out"));
  EXPECT_EQ(bytes->identity(), load_tokenizer("bytes")->identity());
  EXPECT_EQ(read_tokenizer_identity(at("out")), bytes->identity());
  EXPECT_EQ(json::parse(content_of(at("out/config.json")))["eos_token_id"], 256);
  EXPECT_EQ(json::parse(content_of(at("out/tokenizer_config.json")))["eos_token"], "<|endoftext|>");
  expect_code(evaluate("out", "bytes.h5"), 0);
  expect_code(evaluate("out", "own.h5"), 3, {"tokens of another tokenizer"});
}

TEST_F(ModelTokenizer, WhatARunBeginsWithIsSaid) {
  expect_code(train({"--set", "model.from_scratch=true", "--dry-run"}), 0,
              {"model.from_scratch: the sizes are those of model, and the weights are random"});
  const ChildResult tuned =
      run_child("train", {"--config", "run.yaml", "--output", "tuned", "--stop-after", "1"}, folder);
  expect_code(tuned, 0, {"starting with the weights of model"});
  EXPECT_EQ(tuned.err.find("random"), std::string::npos) << tuned.err;
  EXPECT_EQ(tuned.err.find("warning"), std::string::npos) << tuned.err;
  const ChildResult longer = run_child(
      "train", {"--config", "run.yaml", "--output", "longer", "--set", "training.seq_len=200", "--stop-after", "1"},
      folder);
  expect_code(longer, 0, {"warning: training.seq_len = 200 is beyond the 128 tokens that model was made for"});
  // A model tuned at 16 tokens keeps the length of its base.
  expect_code(
      run_child("generate",
                {"--checkpoint", "tuned", "--tokens", "3,4,5", "--max-new-tokens", "40", "--temperature", "1"}, folder),
      0);
  expect_code(run_child("generate",
                        {"--checkpoint", "tuned", "--prompt", std::string(30, 'b'), "--max-new-tokens", "2"}, folder),
              0);
}

TEST_F(ModelTokenizer, ARunWithoutItsTokenizerKnowsItsTokensToo) {
  fs::remove_all(at("own.h5.tokenizer"));
  expect_code(train({"--set", "model.from_scratch=true"}), 0);
  EXPECT_FALSE(fs::exists(at("run/tokenizer/tokenizer.json")));
  expect_code(evaluate("run", "other.h5"), 3, {"tokens of another tokenizer", "that the model was trained with"});
  const std::vector<std::string> prompt{"--checkpoint", "run", "--prompt", "ab", "--max-new-tokens", "2"};
  std::vector<std::string> named = prompt;
  named.insert(named.end(), {"--tokenizer", "model"});
  expect_code(run_child("generate", named, folder), 0);
  expect_code(run_child("generate", prompt, folder), 3, {"another tokenizer than bytes", "--tokenizer"});
}

// The model's files end a text with 47. The tokenizer ends a document with 1, which is a token like any other there.
TEST_F(ModelTokenizer, ATextEndsWhereTheModelsFilesSayIt) {
  const auto tokenizer = load_tokenizer(at("model"));
  ASSERT_EQ(tokenizer->end_of_document(), 1);
  int with_end_of_document = 0;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    if (seed == 7) forget_ends();
    GenerationOptions options;
    options.checkpoint = at("model");
    options.max_new_tokens = 40;
    options.sampling.temperature = 2;
    options.sampling.seed = seed;
    options.prompt = "ab a";
    GenerationSummary of_text, of_ids;
    generated_text(options, &of_text);
    for (const std::int32_t id : tokenizer->encode(options.prompt)) options.tokens.push_back(id);
    const std::string ids = generated_text(options, &of_ids);
    EXPECT_EQ(of_text.rates.new_tokens, of_ids.rates.new_tokens) << ids;
    with_end_of_document += ("," + ids + ",").find(",1,") != std::string::npos ? 1 : 0;
  }
  EXPECT_GT(with_end_of_document, 0);
}

TEST_F(ModelTokenizer, ATokenizerThatCannotBeReadIsSaidAndNoMore) {
  std::ofstream(at("model/tokenizer.json")) << R"({"version": "1.0", "model": {"type": "Unigram", "vocab": []}})";
  expect_code(evaluate("model", "other.h5"), 0, {"because its tokenizer cannot be read", "Unigram"});
}

}  // namespace
}  // namespace ringtrain::testing
