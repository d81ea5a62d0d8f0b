#include "extras/gguf/gguf_tokenizer.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/formats/tokenizer_json.h"
#include "data/tokenizer/splitter.h"
#include "extras/gguf/pieces.h"
#include "framework/error.h"
#include "framework/storage/plain_text.h"
#include "framework/storage/strict_json.h"

namespace ringtrain {

namespace {

using Json = nlohmann::json;

/// A name in tokenizer.ggml.pre, and what it stands for.
struct Splitting {
  std::string_view name;
  std::string_view pattern;
  bool individual_digits = false;  // each digit is a piece, before the pattern is applied
  bool nfc = false;
  bool whole_pieces_first = false;
};
constexpr Splitting splittings[] = {
    {"gpt-2", patterns::gpt2},
    {"smollm", patterns::gpt2, true},
    {"starcoder", patterns::gpt2, true},
    {"refact", patterns::gpt2, true},
    {"command-r", patterns::gpt2, true},
    {"llama-bpe", patterns::llama3, false, false, true},
    {"llama3", patterns::llama3, false, false, true},
    {"qwen2", patterns::qwen2, false, true},
    {"tekken", patterns::tekken, false, false, true},
    {"gpt-4o", patterns::o200k, false, false, true},
    {"llama4", patterns::o200k, false, false, true},
};

/// What every tokenizer in a GGUF file has: a text and a type for each token.
class Tokens {
 public:
  explicit Tokens(const GgufFile& file)
      : file_(file), texts_(file.find<std::vector<std::string>>("tokenizer.ggml.tokens")) {
    if (texts_ == nullptr || texts_->empty()) {
      file.refuse("has no tokenizer (no key tokenizer.ggml.tokens); name another one");
    }
    types_ = list<std::int64_t>("tokenizer.ggml.token_type");
  }

  std::int64_t size() const { return std::ssize(*texts_); }
  const std::string& text(std::int64_t id) const { return (*texts_)[id]; }
  std::uint64_t type(std::int64_t id) const {
    return types_ == nullptr ? Piece::normal : static_cast<std::uint64_t>((*types_)[id]);
  }
  /// Returns a key's list with an element for each token, null if there is none.
  template <class Element>
  const std::vector<Element>* list(const char* key) const {
    const auto* const values = file_.find<std::vector<Element>>(key);
    if (values != nullptr && std::ssize(*values) != size()) {
      file_.refuse("key {} has {} elements for {} tokens", key, values->size(), size());
    }
    return values;
  }

 private:
  const GgufFile& file_;
  const std::vector<std::string>* texts_;
  const std::vector<std::int64_t>* types_ = nullptr;
};

/// Returns "gpt2" or "llama". Throws Error(data) for any other kind of tokenizer, and where there is none.
std::string checked_model_of(const GgufFile& file) {
  std::string model = file.get<std::string>("tokenizer.ggml.model", "");
  if (model == "gpt2" || model == "llama") return model;
  if (model.empty()) file.refuse("holds no tokenizer; name a tokenizer's file");
  file.refuse("its tokenizer is of the kind \"{}\"; of GGUF files gpt2 and llama are read; name a tokenizer's file",
              plain_text(model));
}

const Splitting& splitting_of(const GgufFile& file) {
  const std::string name = file.get<std::string>("tokenizer.ggml.pre", "");
  const auto* const known = std::ranges::find(splittings, std::string_view(name), &Splitting::name);
  if (known == std::end(splittings)) {
    file.refuse(
        "key tokenizer.ggml.pre is \"{}\", a way of splitting text that is not known here; use the model's "
        "tokenizer.json",
        plain_text(name));
  }
  return *known;
}

Json pre_tokenizer_of(const Splitting& splitting) {
  Json parts = Json::array();
  if (splitting.individual_digits) parts.push_back({{"type", "Digits"}, {"individual_digits", true}});
  const bool own = splitting.pattern == patterns::gpt2;  // ByteLevel brings it
  if (!own) {
    parts.push_back({{"type", "Split"},
                     {"pattern", {{"Regex", std::string(splitting.pattern)}}},
                     {"behavior", "Isolated"},
                     {"invert", false}});
  }
  parts.push_back({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", own}});
  return {{"type", "Sequence"}, {"pretokenizers", parts}};
}

/// Returns the id that a key names if another key says that it stands at an end of every text, else null.
const std::int64_t* end_token(const GgufFile& file, const std::string& name) {
  if (!file.get("tokenizer.ggml.add_" + name + "_token", false)) return nullptr;
  return file.find<std::int64_t>("tokenizer.ggml." + name + "_token_id");
}

TokenizerJson byte_level_json(const GgufFile& file) {
  const Tokens tokens(file);
  const Splitting& splitting = splitting_of(file);
  TokenizerJson result;
  for (std::int64_t id = 0; id < tokens.size(); ++id) {
    const std::uint64_t type = tokens.type(id);
    if (type == Piece::unused) continue;  // padding
    if (!result.vocabulary.emplace(tokens.text(id), id).second) {
      file.refuse("the tokens {} and {} are the same", result.vocabulary[tokens.text(id)].get<std::int64_t>(), id);
    }
    if (type != Piece::normal && type != Piece::byte) result.add(tokens.text(id), id, type != Piece::user_defined);
  }
  const auto* const rules = file.find<std::vector<std::string>>("tokenizer.ggml.merges");
  if (rules == nullptr) file.refuse("has no key tokenizer.ggml.merges");
  for (const std::string& rule : *rules) result.merges.push_back(rule);
  if (splitting.nfc) result.normalizer = {{"type", "NFC"}};
  result.pre_tokenizer = pre_tokenizer_of(splitting);
  result.decoder = {{"type", "ByteLevel"}, {"add_prefix_space", true}, {"trim_offsets", true}, {"use_regex", true}};
  result.whole_pieces_first = splitting.whole_pieces_first;
  return result;
}

TokenizerJson pieces_json(const GgufFile& file) {
  const Tokens tokens(file);
  const std::vector<double>* const scores = tokens.list<double>("tokenizer.ggml.scores");
  if (scores == nullptr) file.refuse("has no key tokenizer.ggml.scores");
  if (file.get("tokenizer.ggml.remove_extra_whitespaces", false)) {
    file.refuse("key tokenizer.ggml.remove_extra_whitespaces is true, which this program does not do");
  }
  if (file.metadata().contains("tokenizer.ggml.precompiled_charsmap")) {
    file.refuse("key tokenizer.ggml.precompiled_charsmap is a table that this program does not apply");
  }
  std::vector<Piece> pieces;
  for (std::int64_t id = 0; id < tokens.size(); ++id) {
    pieces.push_back({tokens.text(id), static_cast<float>((*scores)[id]), tokens.type(id)});
  }
  return json_of_pieces(pieces, file.get("tokenizer.ggml.add_space_prefix", true), file.path());
}

/// Puts tokens at the ends of every text, as transformers does unless it is told not to: begin and end are ids of
/// tokens that the vocabulary has.
void put_around(TokenizerJson& json, const std::int64_t* begin, const std::int64_t* end) {
  if (begin == nullptr && end == nullptr) return;
  Json single = Json::array(), pair = Json::array(), tokens = Json::object();
  const auto put = [&](const std::int64_t* id, Json& list, int type) {
    if (id == nullptr) return;
    for (const auto& [token, value] : json.vocabulary.items()) {
      if (value != *id) continue;
      list.push_back({{"SpecialToken", {{"id", token}, {"type_id", type}}}});
      tokens[token] = {{"id", token}, {"ids", {*id}}, {"tokens", {token}}};
    }
  };
  const auto put_text = [&](const char* name, Json& list, int type) {
    put(begin, list, type);
    list.push_back({{"Sequence", {{"id", name}, {"type_id", type}}}});
    put(end, list, type);
  };
  put_text("A", single, 0);
  put_text("A", pair, 0);
  put_text("B", pair, 1);
  json.post_processor = {
      {"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", tokens}};
}

}  // namespace

Json gguf_tokenizer_json(const GgufFile& file) {
  try {
    TokenizerJson json = checked_model_of(file) == "gpt2" ? byte_level_json(file) : pieces_json(file);
    put_around(json, end_token(file, "bos"), end_token(file, "eos"));
    const Json content = json.file();
    check_spec(read_tokenizer_json(content, file.path()));  // it can be read
    return content;
  } catch (const Error& error) {  // a key of another type, too: the model may be a good one all the same
    throw Error(ExitCode::data, error.what());
  }
}

std::map<std::string, std::string> gguf_tokenizer_files(const GgufFile& file) {
  if (file.find<std::string>("tokenizer.ggml.model") == nullptr) return {};
  std::map<std::string, std::string> files{{"tokenizer.json", json_text(gguf_tokenizer_json(file)) + "\n"}};
  if (const auto* const chat = file.find<std::string>("tokenizer.chat_template")) files["chat_template.jinja"] = *chat;
  return files;
}

}  // namespace ringtrain
