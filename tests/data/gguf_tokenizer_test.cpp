// Tokenizers inside GGUF files: the ids that the reference programs gave for the same tokens and merges
// (tests/tokenizers/make_tiny.py), and one sentence for each that cannot be read.
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "data/tokenizer/tokenizer.h"
#include "tests/data/data_fixture.h"

namespace ringtrain {
namespace {

using nlohmann::json;

template <class T>
std::string bytes_of(T value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}
std::string text(const std::string& value) {
  return bytes_of(std::uint64_t{value.size()}) + value;
}

/// A GGUF file of metadata alone: keys, and their values with types.
class Metadata {
 public:
  void put(const std::string& key, const std::string& value) { values_[key] = bytes_of(8U) + text(value); }
  void put(const std::string& key, std::uint32_t value) { values_[key] = bytes_of(4U) + bytes_of(value); }
  void put(const std::string& key, const std::vector<std::string>& list) {
    values_[key] = bytes_of(9U) + bytes_of(8U) + bytes_of(std::uint64_t{list.size()});
    for (const std::string& value : list) values_[key] += text(value);
  }
  template <class T>
  void put_numbers(const std::string& key, std::uint32_t type, const std::vector<T>& list) {
    values_[key] = bytes_of(9U) + bytes_of(type) + bytes_of(std::uint64_t{list.size()});
    for (const T value : list) values_[key] += bytes_of(value);
  }
  void remove(const std::string& key) { values_.erase(key); }
  void write(const std::string& path) const {
    std::string file = "GGUF" + bytes_of(3U) + bytes_of(std::uint64_t{0}) + bytes_of(std::uint64_t{values_.size()});
    for (const auto& [key, value] : values_) file += text(key) + value;
    file.resize((file.size() + 31) / 32 * 32);
    std::ofstream(path, std::ios::binary) << file;
  }

 private:
  std::map<std::string, std::string> values_;
};

class GgufTokenizer : public DataTest {
 protected:
  /// Return what llama.cpp's converter makes of a tokenizer.json: tokens by id with their types.
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
  std::unique_ptr<Tokenizer> load(const Metadata& metadata) const {
    metadata.write(at("model.gguf"));
    return load_tokenizer(at("model.gguf"));
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
    if (!forms.contains(name) && name != "sentencepiece.model") continue;
    const auto tokenizer = load(name == "sentencepiece.model" ? pieces() : byte_level(forms.at(name)));
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
  EXPECT_EQ(load(pieces())->end_of_document(), 2);
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
}

}  // namespace
}  // namespace ringtrain
