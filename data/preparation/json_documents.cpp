#include "data/preparation/json_documents.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "framework/storage/strict_json.h"

namespace ringtrain {

namespace {

using nlohmann::json;

[[noreturn]] void refuse(const std::string& why) {
  throw std::runtime_error(why);
}

json parse(std::string_view line) {
  json value = parse_strict_json(line, {.bytes = line.size(), .depth = 64, .expansion = 32});  // of any shape
  if (!value.is_object()) refuse("no JSON object");
  return value;
}

std::string text_of(const json& object, const std::string& name) {
  const auto found = object.find(name);
  if (found == object.end()) refuse(fmt::format("no field \"{}\"", name));
  if (!found->is_string()) refuse(fmt::format("the field \"{}\" is no text", name));
  return found->get<std::string>();
}

std::vector<DocumentPart> parse_messages(const json& messages, const JsonRules& rules, const ChatForm& form) {
  if (!messages.is_array() || messages.empty()) refuse("\"messages\" is no list of messages");
  std::vector<DocumentPart> parts;
  for (const json& message : messages) {
    if (!message.is_object()) refuse("a message is no object");
    const std::string role = text_of(message, "role");
    const std::string content = text_of(message, "content");
    const bool learned =
        rules.train_on.empty() ? role == "assistant" : std::ranges::find(rules.train_on, role) != rules.train_on.end();
    const float weight = learned ? 1.0f : 0.0f;
    if (form.start && form.end) {
      parts.push_back({"", form.start, 0});
      parts.push_back({role + "\n", {}, 0});
      if (!content.empty()) parts.push_back({content, {}, weight});
      parts.push_back({"", form.end, weight});
      parts.push_back({"\n", {}, 0});
    } else {
      parts.push_back({role + ":", {}, 0});
      parts.push_back({" " + content + "\n", {}, weight});
    }
  }
  return parts;
}

}  // namespace

std::vector<DocumentPart> parse_json_document(std::string_view line, const JsonRules& rules, const ChatForm& form) {
  const json object = parse(line);
  if (const auto messages = object.find("messages"); messages != object.end() && !object.contains(rules.text_field)) {
    return parse_messages(*messages, rules, form);
  }
  std::vector<DocumentPart> parts;
  parts.push_back({text_of(object, rules.text_field), {}, 1});
  return parts;
}

}  // namespace ringtrain
