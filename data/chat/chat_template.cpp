// Finding a tokenizer's chat template (data/chat/chat_format.h).
#include <nlohmann/json.hpp>

#include "data/chat/chat_format.h"
#include "data/tokenizer/formats/tokenizer_json.h"
#include "framework/error.h"
#include "framework/storage/files.h"
#include "framework/storage/folder_file.h"
#include "framework/storage/hash.h"

namespace ringtrain {

namespace {

/// Returns the template in tokenizer_config.json: one text, or a list of named ones of which "default" counts.
std::string template_in(const nlohmann::json& config) {
  const auto found = config.find("chat_template");
  if (found == config.end()) return "";
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_array()) return "";
  for (const nlohmann::json& one : *found) {
    if (one.is_object() && one.contains("name") && one["name"] == "default" && one.contains("template") &&
        one["template"].is_string()) {
      return one["template"].get<std::string>();
    }
  }
  return "";
}

}  // namespace

std::string hash_of_template(std::string_view text) {
  if (text.empty()) return "";
  return hash_bytes(text.ends_with('\n') ? text.substr(0, text.size() - 1) : text);
}

ChatTemplate read_chat_template(const std::string& tokenizer) {
  if (tokenizer == "bytes") return {};
  ChatTemplate result{.hash = {}, .bos = {}, .eos = {}, .path = tokenizer};
  if (!is_directory(tokenizer, ExitCode::data)) return result;
  if (const nlohmann::json config = read_tokenizer_config(tokenizer); config.is_object()) {
    result = {hash_of_template(template_in(config)), token_in(config, "bos_token"), token_in(config, "eos_token"),
              tokenizer + "/tokenizer_config.json"};
  }
  if (const std::string path = tokenizer + "/chat_template.jinja"; path_exists(path, ExitCode::data)) {
    result.hash = hash_of_template(read_in_folder(tokenizer, "chat_template.jinja", ExitCode::data));
    result.path = path;
  }
  return result;
}

}  // namespace ringtrain
