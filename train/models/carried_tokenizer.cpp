#include "train/models/carried_tokenizer.h"

#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "data/tokenizer/formats/tokenizer_json_writer.h"
#include "data/tokenizer/tokenizer.h"
#include "framework/storage/files.h"
#include "framework/storage/folder_file.h"
#include "framework/storage/strict_json.h"

namespace ringtrain {

namespace {

/// Files that belong to a model's weights and that training does not make.
constexpr std::array carried_files{"generation_config.json", "tokenizer.json",    "tokenizer_config.json",
                                   "tokenizer.model",        "tekken.json",       "special_tokens_map.json",
                                   "added_tokens.json",      "vocab.json",        "merges.txt",
                                   "chat_template.jinja",    "chat_template.json"};

constexpr std::int64_t longest = std::int64_t{256} << 20;

/// Throws Error(checkpoint) if a tokenizer.json is damaged. An intact one of an unsupported kind is carried along.
void require_whole(const std::string& from) {
  if (from.empty() || from == "bytes" || !path_exists(from + "/tokenizer.json", ExitCode::checkpoint)) return;
  try {
    read_tokenizer_identity(from, ExitCode::checkpoint);
  } catch (const Error& error) {
    if (error.code() == ExitCode::checkpoint) throw;
  }
}

/// Returns a tokenizer_config.json that makes transformers use a tokenizer.json unchanged, leave decoded text
/// unchanged, and use the tokenizer.json's special tokens. Throws std::exception if the tokenizer.json is damaged.
nlohmann::json config_of(const std::string& tokenizer_json, const EndIds& ids) {
  nlohmann::json config{{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
  const nlohmann::json tokenizer = parse_strict_json(tokenizer_json, {.bytes = longest});
  const nlohmann::json added = tokenizer.value("added_tokens", nlohmann::json::array());
  const auto put = [&](const char* role, std::int64_t id) {
    for (const nlohmann::json& token : added) {
      if (token.at("id") == id) config[role] = token.at("content").get<std::string>();
    }
  };
  if (ids.begin) put("bos_token", *ids.begin);
  if (!ids.ends.empty()) put("eos_token", ids.ends.front());
  const nlohmann::json unknown = tokenizer.at("model").value("unk_token", nlohmann::json());
  if (unknown.is_string()) config["unk_token"] = unknown;
  return config;
}

}  // namespace

void check_carried_files(const std::string& folder) {
  for (const char* name : carried_files) check_link_in_folder(folder, name, ExitCode::checkpoint);
}

std::vector<std::string> carry_tokenizer(const std::string& from, const std::string& to, const EndIds& ids,
                                         OwnGeneration generation, ExitCode code) {
  std::map<std::string, std::string> files;  // name to content
  const auto write = [&](const std::string& name, std::string content) {
    write_file(to + "/" + name, content, code);
    files[name] = std::move(content);
  };
  require_whole(from);
  if (from == "bytes") {
    write("tokenizer.json", json_text(byte_tokenizer_json()) + "\n");
  } else if (!from.empty() && !is_directory(from, code)) {
    write("tokenizer.json", read_tokenizer_file(from, ExitCode::checkpoint));
  } else if (!from.empty()) {
    for (const std::string name : carried_files) {
      if (name == "generation_config.json" && generation == OwnGeneration::left) continue;
      if (path_exists(from + "/" + name, code)) write(name, read_in_folder(from, name, code, longest));
    }
  }
  if (files.contains("tokenizer.json") && !files.contains("tokenizer_config.json")) {
    nlohmann::json config;
    try {  // one of an unsupported kind may be damaged, too
      config = config_of(files.at("tokenizer.json"), ids);
    } catch (const std::exception& error) {
      fail(ExitCode::checkpoint, "{}: its tokenizer.json is damaged: {}", from, error.what());
    }
    write("tokenizer_config.json", json_text(config, 2) + "\n");
  }
  if (std::string config = write_generation_config(to, ids); !config.empty()) {
    write("generation_config.json", std::move(config));
  }
  std::vector<std::string> names;
  for (const auto& [name, content] : files) names.push_back(name);
  return names;
}

void carry_chat_template(const std::string& from, const std::string& to, ExitCode code) {
  const std::string name = "chat_template.jinja";
  if (path_exists(from + "/" + name)) write_file(to + "/" + name, read_in_folder(from, name, code, longest), code);
}

}  // namespace ringtrain
