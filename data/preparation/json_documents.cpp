#include "data/preparation/json_documents.h"

#include <fmt/core.h>

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

}  // namespace

JsonDocument parse_json_document(std::string_view line, const JsonRules& rules, const ChatFormat& format) {
  const json object = parse(line);
  const bool has_text = object.contains(rules.text_field);
  JsonDocument document;
  if (!(has_text && rules.text_field_named)) {
    if (const std::optional<Conversation> conversation = read_conversation(object, rules.train_on)) {
      if (has_text) {
        refuse(
            fmt::format("there are a conversation and \"{}\"; name the field with --text-field to take the text, or "
                        "remove it",
                        rules.text_field));
      }
      document.parts = format.parts(*conversation, false, &document.left_out);
      for (const Message& message : *conversation) {
        if (std::ranges::find(document.roles, message.role) == document.roles.end()) {
          document.roles.push_back(message.role);
        }
      }
      return document;
    }
    if (!has_text && object.contains("completion")) {
      document.parts.push_back({.text = text_of(object, "prompt"), .learned = false});
      document.parts.push_back({.text = text_of(object, "completion")});
      return document;
    }
  }
  document.parts.push_back({.text = text_of(object, rules.text_field)});
  return document;
}

}  // namespace ringtrain
