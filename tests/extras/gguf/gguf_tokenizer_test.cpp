// Tokenizers inside GGUF files: the ids that the reference programs gave for the same tokens and merges
// (tests/tokenizers/make_tiny.py), and one sentence for each that cannot be read.
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "data/tokenizer/tokenizer.h"
#include "extras/gguf/gguf_tokenizer.h"
#include "tests/data/data_fixture.h"
#include "tests/extras/gguf/gguf_metadata.h"

namespace ringtrain {
namespace {

using nlohmann::json;

using Metadata = testing::GgufMetadata;

class GgufTokenizer : public DataTest {
 protected:
  /// Returns what llama.cpp's converter makes of a tokenizer.json: tokens by id with their types.
  static Metadata metadata_of(const json& file) {
    enum : std::int32_t { normal = 1, control = 3, user_defined = 4, byte = 6 };
    std::map<std::int64_t, std::pair<std::string, std::int32_t>> tokens;
    for (const auto& [token, id] : file["model"]["vocab"].items()) {
      const bool is_byte = token.size() == 6 && token.starts_with("<0x");
      tokens[id.get<std::int64_t>()] = {token, is_byte ? byte : normal};
    }
    for (const json& added : file["added_tokens"]) {
      tokens[added["id"].get<std::int64_t>()] = {added["content"].get<std::string>(),
                                                 added["special"].get<bool>() ? control : user_defined};
    }
    std::vector<std::string> texts;
    std::vector<std::int32_t> types;
    for (const auto& [id, token] : tokens) {
      texts.push_back(token.first);
      types.push_back(token.first == "<unk>" ? 2 : token.second);
    }
    Metadata metadata;
    metadata.put("tokenizer.ggml.tokens", texts);
    metadata.put_numbers("tokenizer.ggml.token_type", 5, types);
    return metadata;
  }
  static Metadata byte_level(const std::string& pre) {
    const json file = tiny_json("byte_level.json");
    Metadata metadata = metadata_of(file);
    std::vector<std::string> merges;
    for (const json& merge : file["model"]["merges"]) {
      merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
    }
    metadata.put("tokenizer.ggml.model", "gpt2");
    metadata.put("tokenizer.ggml.pre", pre);
    metadata.put("tokenizer.ggml.merges", merges);
    return metadata;
  }
  static Metadata pieces() {
    const json file = tiny_json("sentencepiece.json");
    Metadata metadata = metadata_of(file);
    std::vector<float> scores;  // SentencePiece's: a later piece has a lower one
    for (std::size_t id = 0; id < file["model"]["vocab"].size(); ++id) scores.push_back(-static_cast<float>(id));
    metadata.put("tokenizer.ggml.model", "llama");
    metadata.put_numbers("tokenizer.ggml.scores", 6, scores);
    metadata.put("tokenizer.ggml.eos_token_id", 2U);
    return metadata;
  }
  /// Returns the tokenizer.json of a file with these keys.
  json converted(const Metadata& metadata) const {
    metadata.write(at("model.gguf"));
    return gguf_tokenizer_json(GgufFile::open(at("model.gguf")));
  }
  /// Returns the tokenizer of the folder that is made of a file with these keys.
  std::unique_ptr<Tokenizer> load(const Metadata& metadata) const {
    text("out/tokenizer.json", converted(metadata).dump());
    return load_tokenizer(at("out"));
  }
  void expect_refused(const Metadata& metadata, const std::string& part) const {
    const std::string told = error_of(ExitCode::data, [&] { load(metadata); });
    EXPECT_TRUE(holds(told, at("model.gguf"))) << told;
    EXPECT_TRUE(holds(told, part)) << told;
  }
};

TEST_F(GgufTokenizer, IdsAreThoseOfTheReferencePrograms) {
  const std::map<std::string, std::string> forms{{"gpt2", "gpt-2"},  {"smollm", "smollm"}, {"llama3", "llama-bpe"},
                                                 {"qwen2", "qwen2"}, {"tekken", "tekken"}, {"o200k", "gpt-4o"}};
  const json golden = tiny_json("golden.json");
  std::size_t compared = 0;
  for (const json& one : golden["cases"]) {
    const auto name = one["name"].get<std::string>();
    SCOPED_TRACE(name);
    if (!forms.contains(name) && name != "SentencePiece") continue;
    const auto tokenizer = load(name == "SentencePiece" ? pieces() : byte_level(forms.at(name)));
    ++compared;
    for (std::size_t i = 0; i < golden["texts"].size(); ++i) {
      const auto text = golden["texts"][i].get<std::string>();
      EXPECT_EQ(tokenizer->encode(text), one["text"][i].get<std::vector<std::int32_t>>()) << i << ": " << text;
    }
  }
  EXPECT_EQ(compared, forms.size() + 1);
}

TEST_F(GgufTokenizer, HasTheIdentityOfTheTokenizerJsonThatItWasMadeOf) {
  json file = tiny_json("byte_level.json");
  file["added_tokens"][1]["normalized"] = false;  // what GGUF does not say
  file["pre_tokenizer"] = {{"type", "Sequence"},
                           {"pretokenizers",
                            {{{"type", "Digits"}, {"individual_digits", true}},
                             {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}}}};
  std::ofstream(at("tokenizer.json")) << file.dump();
  const auto tokenizer = load(byte_level("smollm"));
  // The converter keeps added tokens among the others: ids are the same, the list of tokens is longer.
  file["model"]["vocab"]["<tool>"] = 600;
  std::ofstream(at("tokenizer.json")) << file.dump();
  EXPECT_EQ(tokenizer->identity(), load_tokenizer(at("tokenizer.json"))->identity());
  EXPECT_NE(tokenizer->identity(), load(byte_level("gpt-2"))->identity());
  EXPECT_EQ(tokenizer->vocab_size(), 601);
  EXPECT_EQ(tokenizer->end_of_document(), tokenizer->find_special("<|endoftext|>"));
}

TEST_F(GgufTokenizer, ASpaceThatPiecesGetInFrontIsTakenAwayAgain) {
  const json golden = tiny_json("golden.json");
  for (const bool space_in_front : {true, false}) {
    Metadata metadata = pieces();
    if (!space_in_front) metadata.put_truth("tokenizer.ggml.add_space_prefix", false);
    const auto tokenizer = load(metadata);
    const json file = converted(metadata);
    EXPECT_EQ(file["decoder"]["decoders"].back()["type"], space_in_front ? "Strip" : "Fuse");
    EXPECT_EQ(file["post_processor"], nullptr);
    for (const json& one : golden["texts"]) {
      const auto text = one.get<std::string>();
      if (text.find("\u2581") != std::string::npos) continue;  // SentencePiece's own space
      EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
    }
  }
}

TEST_F(GgufTokenizer, TheTokensAtTheEndsOfATextGoOutAsThePostProcessor) {
  Metadata metadata = pieces();
  metadata.put("tokenizer.ggml.bos_token_id", 1U);
  metadata.put_truth("tokenizer.ggml.add_bos_token", true);
  metadata.put_truth("tokenizer.ggml.add_eos_token", false);
  const std::string identity = load(metadata)->identity();
  const json file = converted(metadata);
  const json text_a{{"Sequence", {{"id", "A"}, {"type_id", 0}}}}, text_b{{"Sequence", {{"id", "B"}, {"type_id", 1}}}};
  const auto begin = [](int type) { return json{{"SpecialToken", {{"id", "<s>"}, {"type_id", type}}}}; };
  EXPECT_EQ(file["post_processor"],
            json({{"type", "TemplateProcessing"},
                  {"single", {begin(0), text_a}},
                  {"pair", {begin(0), text_a, begin(1), text_b}},
                  {"special_tokens", {{"<s>", {{"id", "<s>"}, {"ids", {1}}, {"tokens", {"<s>"}}}}}}}));
  EXPECT_EQ(load(pieces())->identity(), identity);  // it changes no ids of a text
}

TEST_F(GgufTokenizer, OneSentenceForEachThatCannotBeRead) {
  expect_refused(byte_level("a-pattern-of-tomorrow"), "tokenizer.ggml.pre is \"a-pattern-of-tomorrow\"");
  Metadata broken = byte_level("gpt-2");
  broken.put("tokenizer.ggml.model", "bert");
  expect_refused(broken, "of the kind \"bert\"");
  broken.remove("tokenizer.ggml.model");
  expect_refused(broken, "holds no tokenizer");
  broken = byte_level("gpt-2");
  broken.remove("tokenizer.ggml.merges");
  expect_refused(broken, "no key tokenizer.ggml.merges");
  broken.put("tokenizer.ggml.merges", std::vector<std::string>{"no_pair"});
  expect_refused(broken, "merge 0 is 'no_pair'");
  broken = byte_level("gpt-2");
  broken.put_numbers("tokenizer.ggml.token_type", 5, std::vector<std::int32_t>{1, 1});
  expect_refused(broken, "key tokenizer.ggml.token_type has 2 elements for 601 tokens");
  broken.put("tokenizer.ggml.tokens", std::vector<std::string>{"a", "a"});
  expect_refused(broken, "the tokens 0 and 1 are the same");
  broken.remove("tokenizer.ggml.tokens");
  expect_refused(broken, "no key tokenizer.ggml.tokens");
  broken = pieces();
  broken.remove("tokenizer.ggml.scores");
  expect_refused(broken, "no key tokenizer.ggml.scores");
  broken = pieces();
  broken.put_truth("tokenizer.ggml.remove_extra_whitespaces", true);
  expect_refused(broken, "key tokenizer.ggml.remove_extra_whitespaces is true");
  broken.put_truth("tokenizer.ggml.remove_extra_whitespaces", false);
  EXPECT_EQ(load(broken)->identity(), load(pieces())->identity());
  broken.put_numbers("tokenizer.ggml.precompiled_charsmap", 0, std::vector<std::uint8_t>{1, 2});
  expect_refused(broken, "key tokenizer.ggml.precompiled_charsmap is a table");
}

}  // namespace
}  // namespace ringtrain
