#include "data/tokenizer/formats/rank_files.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "data/tokenizer/splitter.h"
#include "framework/error.h"
#include "framework/storage/hash.h"
#include "framework/storage/strict_json.h"
#include "framework/text/text_reader.h"

namespace ringtrain {

namespace {

constexpr std::int64_t max_tokens = 1 << 24;

/// Returns the six bits of a character, -1 if it is none of the alphabet.
int bits_of(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  return c == '/' ? 63 : -1;
}

/// Returns the bytes of a whole base64 text (RFC 4648, section 4), with or without padding; nothing if it is none.
std::optional<std::string> decode_base64(std::string_view text) {
  for (int i = 0; i < 2 && text.ends_with('='); ++i) text.remove_suffix(1);
  if (text.size() % 4 == 1) return std::nullopt;
  std::string bytes;
  std::uint32_t buffer = 0;
  int held = 0;
  for (const char c : text) {
    const int bits = bits_of(c);
    if (bits < 0) return std::nullopt;
    buffer = buffer << 6 | static_cast<std::uint32_t>(bits);
    held += 6;
    if (held >= 8) {
      held -= 8;
      bytes += static_cast<char>(buffer >> held & 0xFF);
    }
  }
  return bytes;
}

/// A published file in tiktoken's form, which says neither how it splits nor what its special tokens are.
struct KnownFile {
  const char* name;
  std::string_view hash;  // of the file
  std::string_view pattern;
  bool nfc;
  std::vector<std::string> special;
};

std::vector<std::string> numbered(std::vector<std::string> names, const char* form, int from, int count) {
  for (int i = 0; i < count; ++i) names.push_back(fmt::format(fmt::runtime(form), from + i));
  return names;
}

const std::vector<KnownFile>& known_files() {
  static const std::vector<KnownFile> files = {
      {"GPT-2", "aa5ef69a716d8a563cb2fbe95939bd2d", patterns::gpt2, false, {"<|endoftext|>"}},
      {"Llama 3", "22e6ee98364f2a1fe7339703bb9e9d7b", patterns::llama3, false,
       numbered({"<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>", "<|reserved_special_token_1|>",
                 "<|finetune_right_pad_id|>", "<|step_id|>", "<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>",
                 "<|eot_id|>", "<|python_tag|>", "<|image|>"},
                "<|reserved_special_token_{}|>", 2, 244)},
      {"Llama 4",
       "fd1ec8f19c117ba2d2fc82dae9636e64",
       patterns::o200k,
       false,
       {"<|begin_of_text|>", "<|end_of_text|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>"}},
      {"Qwen", "d68162fbd6d3acb39f288efcb5368aab", patterns::qwen2, true,
       numbered({"<|endoftext|>", "<|im_start|>", "<|im_end|>"}, "<|extra_{}|>", 0, 205)},
      {"Qwen 3.6",
       "c5a27faf8898f9912a38d0d36c85cbae",
       patterns::qwen35,
       true,
       {"<|endoftext|>",
        "<|im_start|>",
        "<|im_end|>",
        "<|object_ref_start|>",
        "<|object_ref_end|>",
        "<|box_start|>",
        "<|box_end|>",
        "<|quad_start|>",
        "<|quad_end|>",
        "<|vision_start|>",
        "<|vision_end|>",
        "<|vision_pad|>",
        "<|image_pad|>",
        "<|video_pad|>",
        "<tool_call>",
        "</tool_call>",
        "<|fim_prefix|>",
        "<|fim_middle|>",
        "<|fim_suffix|>",
        "<|fim_pad|>",
        "<|repo_name|>",
        "<|file_sep|>",
        "<tool_response>",
        "</tool_response>",
        "<think>",
        "</think>",
        "<|audio_start|>",
        "<|audio_end|>",
        "<tts_pad>",
        "<tts_text_bos>",
        "<tts_text_eod>",
        "<tts_text_bos_single>",
        "<|audio_pad|>"}},
  };
  return files;
}

const KnownFile* find_known(const std::string& hash) {
  for (const KnownFile& file : known_files()) {
    if (file.hash == hash) return &file;
  }
  return nullptr;
}

/// The names of the first special tokens of tekken.json, where the file does not say them itself.
const std::vector<std::string>& early_tekken_tokens() {
  static const std::vector<std::string> names = {"<unk>",
                                                 "<s>",
                                                 "</s>",
                                                 "[INST]",
                                                 "[/INST]",
                                                 "[AVAILABLE_TOOLS]",
                                                 "[/AVAILABLE_TOOLS]",
                                                 "[TOOL_RESULTS]",
                                                 "[/TOOL_RESULTS]",
                                                 "[TOOL_CALLS]",
                                                 "[IMG]",
                                                 "<pad>",
                                                 "[IMG_BREAK]",
                                                 "[IMG_END]",
                                                 "[PREFIX]",
                                                 "[MIDDLE]",
                                                 "[SUFFIX]",
                                                 "[SYSTEM_PROMPT]",
                                                 "[/SYSTEM_PROMPT]",
                                                 "[TOOL_CONTENT]"};
  return names;
}

AddedToken special_token(std::string content, std::int64_t id) {
  AddedToken token;
  token.content = std::move(content);
  token.id = static_cast<std::int32_t>(id);
  token.special = true;
  return token;
}

}  // namespace

std::vector<Merge> merges_of_ranks(const std::vector<std::string>& symbols, std::size_t first) {
  std::unordered_map<std::string_view, std::int32_t> id_of;
  for (std::size_t i = first; i < symbols.size(); ++i) {
    if (!symbols[i].empty()) id_of.try_emplace(symbols[i], static_cast<std::int32_t>(i));
  }
  std::vector<Merge> merges;
  for (std::size_t i = first; i < symbols.size(); ++i) {
    const std::string_view token = symbols[i];
    for (std::size_t cut = 1; cut < token.size(); ++cut) {
      const auto left = id_of.find(token.substr(0, cut));
      if (left == id_of.end()) continue;
      const auto right = id_of.find(token.substr(cut));
      if (right == id_of.end()) continue;
      merges.push_back({left->second, right->second, static_cast<std::int32_t>(i), static_cast<std::uint32_t>(i)});
    }
  }
  return merges;
}

bool is_tiktoken(std::string_view text) {
  const std::string_view line = text.substr(0, text.find('\n'));
  const std::size_t space = line.find(' ');
  return space != std::string_view::npos && space > 0 && space + 1 < line.size() && line.size() < 4096 &&
         decode_base64(line.substr(0, space)) && line[space + 1] >= '0' && line[space + 1] <= '9';
}

BpeSpec read_tiktoken(std::string_view text, const std::string& path, const std::string& pattern) {
  const KnownFile* known = find_known(hash_bytes(text));
  if (!known && pattern.empty()) {
    fail(ExitCode::data,
         "{} lists tokens but not how text is split, and is no file that this program knows; name the pattern with "
         "--tokenizer-pattern, or use the model's tokenizer.json",
         path);
  }
  BpeSpec spec;
  spec.where = path;
  spec.whole_pieces_first = true;
  spec.nfc = known && known->nfc;
  spec.splits.push_back({BpeSpec::Split::Kind::pattern, pattern.empty() ? std::string(known->pattern) : pattern});
  const auto limit = std::min<std::int64_t>(max_tokens, static_cast<std::int64_t>(text.size()));
  std::int64_t number = 0;
  while (!text.empty()) {
    ++number;
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const std::size_t space = line.find(' ');
    std::int64_t rank = -1;
    std::optional<std::string> bytes;
    if (space != std::string_view::npos) {
      bytes = decode_base64(line.substr(0, space));
      rank = number_of<std::int64_t>(line.substr(space + 1)).value_or(-1);
    }
    if (!bytes || bytes->empty() || rank < 0 || rank >= limit) {
      fail(ExitCode::data, "{}:{}: no token in base64 with its rank; is the file whole?", path, number);
    }
    const auto id = static_cast<std::size_t>(rank);
    if (spec.tokens.size() <= id) spec.tokens.resize(id + 1);
    if (!spec.tokens[id].empty()) fail(ExitCode::data, "{}:{}: a second token of rank {}", path, number, rank);
    spec.tokens[id] = std::move(*bytes);
  }
  spec.merges = merges_of_ranks(spec.tokens, 0);
  if (known) {
    const auto first = static_cast<std::int64_t>(spec.tokens.size());
    for (std::size_t i = 0; i < known->special.size(); ++i) {
      spec.added.push_back(special_token(known->special[i], first + static_cast<std::int64_t>(i)));
    }
  }
  return spec;
}

BpeSpec read_tekken(const nlohmann::json& json, const std::string& path) {
  BpeSpec spec;
  spec.where = path;
  spec.whole_pieces_first = true;
  const auto count = [&](const nlohmann::json& object, const char* name) {
    const std::optional<std::int64_t> number = whole_number(object.at(name));
    if (!number) fail(ExitCode::data, "{}: {} is no whole number", path, name);
    return *number;
  };
  try {
    const nlohmann::json& config = json.at("config");
    const auto size = count(config, "default_vocab_size");
    const auto special = count(config, "default_num_special_tokens");
    if (special < 0 || special > 65536 || size <= special || size > max_tokens ||
        size - special > static_cast<std::int64_t>(json.at("vocab").size())) {
      fail(ExitCode::data, "{}: {} tokens, {} of them special: these are no numbers of tokens", path, size, special);
    }
    spec.splits.push_back({BpeSpec::Split::Kind::pattern, config.at("pattern").get<std::string>()});
    spec.tokens.resize(size);
    for (const nlohmann::json& token : json.at("vocab")) {
      const auto rank = count(token, "rank");
      const std::optional<std::string> bytes = decode_base64(token.at("token_bytes").get<std::string>());
      if (rank < 0 || !bytes) fail(ExitCode::data, "{}: the token of rank {} is no base64", path, rank);
      if (rank < size - special) spec.tokens[special + rank] = *bytes;
    }
    std::vector<std::string> names(special);
    if (const auto named = json.find("special_tokens"); named != json.end() && named->is_array()) {
      for (const nlohmann::json& token : *named) {
        const auto rank = count(token, "rank");
        if (rank < 0 || rank >= special) fail(ExitCode::data, "{}: a special token of rank {}", path, rank);
        names[rank] = token.at("token_str").get<std::string>();
      }
    } else {
      const std::vector<std::string>& early = early_tekken_tokens();
      std::copy_n(early.begin(), std::min(early.size(), names.size()), names.begin());
    }
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (names[i].empty()) names[i] = fmt::format("<SPECIAL_{}>", i);
      spec.added.push_back(special_token(names[i], static_cast<std::int64_t>(i)));
    }
    spec.merges = merges_of_ranks(spec.tokens, static_cast<std::size_t>(special));
  } catch (const nlohmann::json::exception& error) {
    fail(ExitCode::data, "{} is no tekken.json that this program reads: {}", path, error.what());
  }
  return spec;
}

}  // namespace ringtrain
