#include "train/models/carried_tokenizer.h"

#include <array>
#include <nlohmann/json.hpp>

#include "data/tokenizer/formats/gguf_tokenizer.h"
#include "framework/gguf/gguf.h"
#include "framework/storage/files.h"
#include "framework/storage/folder_file.h"

namespace ringtrain {

namespace {

/// What stands beside a model's weights and is not made by training.
constexpr std::array carried_files{"generation_config.json", "tokenizer.json",    "tokenizer_config.json",
                                   "tokenizer.model",        "tekken.json",       "special_tokens_map.json",
                                   "added_tokens.json",      "vocab.json",        "merges.txt",
                                   "chat_template.jinja",    "chat_template.json"};

std::vector<std::string> copy_files(const std::string& from, const std::string& to, ExitCode code) {
  constexpr std::int64_t longest = std::int64_t{256} << 20;
  std::vector<std::string> names;
  for (const char* name : carried_files) {
    const std::string path = from + "/" + name;
    if (!path_exists(path, code)) continue;
    write_file(to + "/" + name, read_in_folder(from, name, code, longest), code);
    names.emplace_back(name);
  }
  return names;
}

/// Writes what a GGUF file says of its tokenizer as the files of a folder.
CarriedTokenizer write_files(const GgufFile& file, const std::string& to, ExitCode code) {
  CarriedTokenizer result;
  nlohmann::json tokenizer;
  try {
    if (!file.text("tokenizer.ggml.model")) return result;
    tokenizer = gguf_tokenizer_json(file);
  } catch (const Error& error) {  // weights go without
    result.remark = fmt::format("the tokenizer does not go along: {}", error.what());
    return result;
  }
  const std::vector<std::string>& tokens = *file.texts("tokenizer.ggml.tokens");
  // The class that takes tokenizer.json as it is, and text after decoding as it comes.
  nlohmann::json config{{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
  for (const char* role : {"bos", "eos"}) {
    const auto id = file.integer(fmt::format("tokenizer.ggml.{}_token_id", role));
    if (id && *id >= 0 && *id < std::ssize(tokens)) {
      config[fmt::format("{}_token", role)] = tokens[*id];
    }
  }
  if (const nlohmann::json& unknown = tokenizer["model"]["unk_token"]; unknown.is_string()) {
    config["unk_token"] = unknown;
  }
  const auto write = [&](const std::string& name, const std::string& content) {
    write_file(to + "/" + name, content, code);
    result.files.push_back(name);
  };
  write("tokenizer.json", tokenizer.dump() + "\n");
  write("tokenizer_config.json", config.dump(2) + "\n");
  if (const auto chat = file.text("tokenizer.chat_template")) write("chat_template.jinja", *chat);
  return result;
}

}  // namespace

void check_carried_files(const std::string& folder) {
  for (const char* name : carried_files) check_link_in_folder(folder, name, ExitCode::checkpoint);
}

CarriedTokenizer carry_tokenizer(const std::string& from, const std::string& to, ExitCode code) {
  if (from.empty()) return {};
  if (is_directory(from, code)) return {.files = copy_files(from, to, code), .remark = {}};
  return write_files(GgufFile::open(from), to, code);
}

}  // namespace ringtrain
