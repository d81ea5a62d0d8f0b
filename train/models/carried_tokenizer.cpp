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

  std::vector<std::string> carry(const std::string& from) {
    require_whole(from);
    if (from == "bytes") {
      write("tokenizer.json", json_text(byte_tokenizer_json()) + "\n");
    } else if (!from.empty() && is_directory(from, code_)) {
      copy_folder(from);
    } else if (!from.empty()) {
      write("tokenizer.json", read_tokenizer_file(from, ExitCode::checkpoint));
    }
    describe(from);
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

  /// Throws Error(checkpoint) if a tokenizer.json is damaged. One that is whole and of a kind that is not read here is
  /// carried along.
  static void require_whole(const std::string& from) {
    if (from.empty() || from == "bytes" || !path_exists(from + "/tokenizer.json", ExitCode::checkpoint)) return;
    try {
      read_tokenizer_identity(from, ExitCode::checkpoint);
    } catch (const Error& error) {
      if (error.code() == ExitCode::checkpoint) throw;
    }
  }

  void copy_folder(const std::string& from) {
    for (const char* name : carried_files) {
      if (std::string_view(name) == "generation_config.json" && generation_ == OwnGeneration::left) continue;
      if (path_exists(from + "/" + name, code_)) write(name, read_in_folder(from, name, code_, longest));
    }
  }

  /// Writes the tokenizer_config.json that makes transformers take a tokenizer.json as it is, and text after decoding
  /// as it comes, where there is none.
  void describe(const std::string& from) {
    if (!files_.contains("tokenizer.json") || files_.contains("tokenizer_config.json")) return;
    nlohmann::json config{{"tokenizer_class", "PreTrainedTokenizerFast"}, {"clean_up_tokenization_spaces", false}};
    try {  // a kind that is not read here may be damaged, too
      add_special_tokens(config);
    } catch (const std::exception& error) {
      fail(ExitCode::checkpoint, "{}: its tokenizer.json is damaged: {}", from, error.what());
    }
    write("tokenizer_config.json", json_text(config, 2) + "\n");
  }

  /// Names a config's special tokens, as the tokenizer.json has them. Throws std::exception if it is damaged.
  void add_special_tokens(nlohmann::json& config) const {
    const nlohmann::json tokenizer =
        parse_strict_json(read_file(to_ + "/tokenizer.json", code_, longest), {.bytes = longest});
    const nlohmann::json added = tokenizer.value("added_tokens", nlohmann::json::array());
    const auto put = [&](const char* role, std::int64_t id) {
      for (const nlohmann::json& token : added) {
        if (token.at("id") == id) config[role] = token.at("content").get<std::string>();
      }
    };
    if (ids_.begin) put("bos_token", *ids_.begin);
    if (!ids_.ends.empty()) put("eos_token", ids_.ends.front());
    const nlohmann::json unknown = tokenizer.at("model").value("unk_token", nlohmann::json());
    if (unknown.is_string()) config["unk_token"] = unknown;
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
                                         OwnGeneration generation, ExitCode code) {
  return Carrier(to, ids, generation, code).carry(from);
}

}  // namespace ringtrain
