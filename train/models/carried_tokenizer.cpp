#include "train/models/carried_tokenizer.h"

#include <array>
#include <nlohmann/json.hpp>
#include <set>

#include "data/tokenizer/formats/tokenizer_json_writer.h"
#include "data/tokenizer/tokenizer.h"
#include "framework/storage/files.h"
#include "framework/storage/folder_file.h"
#include "framework/storage/strict_json.h"

namespace ringtrain {

namespace {

/// What stands beside a model's weights and is not made by training.
constexpr std::array carried_files{"generation_config.json", "tokenizer.json",    "tokenizer_config.json",
                                   "tokenizer.model",        "tekken.json",       "special_tokens_map.json",
                                   "added_tokens.json",      "vocab.json",        "merges.txt",
                                   "chat_template.jinja",    "chat_template.json"};

/// Fills one folder.
class Carrier {
 public:
  Carrier(const std::string& to, const EndIds& ids, OwnGeneration generation, ExitCode code)
      : to_(to), ids_(ids), generation_(generation), code_(code) {}

  std::vector<std::string> carry(const std::string& from, const std::map<std::string, std::string>& made) {
    for (const auto& [name, content] : made) write(name, content);
    if (from == "bytes") {
      write("tokenizer.json", json_text(byte_tokenizer_json()) + "\n");
    } else if (!from.empty() && is_directory(from, code_)) {
      copy_folder(from);
    } else if (!from.empty()) {
      write("tokenizer.json", read_tokenizer_file(from));
    }
    describe();
    if (const std::string config = write_generation_config(to_, ids_); !config.empty()) {
      write("generation_config.json", config);
    }
    return {files_.begin(), files_.end()};
  }

 private:
  static constexpr std::int64_t longest = std::int64_t{256} << 20;

  void write(const std::string& name, const std::string& content) {
    write_file(to_ + "/" + name, content, code_);
    files_.insert(name);
  }

  void copy_folder(const std::string& from) {
    for (const char* name : carried_files) {
      if (std::string_view(name) == "generation_config.json" && generation_ == OwnGeneration::left) continue;
      if (path_exists(from + "/" + name, code_)) write(name, read_in_folder(from, name, code_, longest));
    }
  }

  /// Writes the tokenizer_config.json that makes transformers take a tokenizer.json as it is, and text after decoding
  /// as it comes, where there is none.
  void describe() {
    if (!files_.contains("tokenizer.json") || files_.contains("tokenizer_config.json")) return;
    const nlohmann::json tokenizer =
        parse_strict_json(read_file(to_ + "/tokenizer.json", code_, longest), {.bytes = longest});
    nlohmann::json config{{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
    const auto put = [&](const char* role, std::int64_t id) {
      if (!tokenizer.contains("added_tokens")) return;
      for (const nlohmann::json& token : tokenizer["added_tokens"]) {
        if (token["id"] == id) config[role] = token["content"];
      }
    };
    if (ids_.begin) put("bos_token", *ids_.begin);
    if (!ids_.ends.empty()) put("eos_token", ids_.ends.front());
    if (const nlohmann::json unknown = tokenizer["model"].value("unk_token", nlohmann::json()); unknown.is_string()) {
      config["unk_token"] = unknown;
    }
    write("tokenizer_config.json", json_text(config, 2) + "\n");
  }

  const std::string& to_;
  const EndIds& ids_;
  OwnGeneration generation_;
  ExitCode code_;
  std::set<std::string> files_;
};

}  // namespace

void check_carried_files(const std::string& folder) {
  for (const char* name : carried_files) check_link_in_folder(folder, name, ExitCode::checkpoint);
}

std::vector<std::string> carry_tokenizer(const std::string& from, const std::string& to, const EndIds& ids,
                                         OwnGeneration generation, ExitCode code,
                                         const std::map<std::string, std::string>& made) {
  return Carrier(to, ids, generation, code).carry(from, made);
}

}  // namespace ringtrain
