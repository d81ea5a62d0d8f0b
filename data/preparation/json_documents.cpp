#include "data/preparation/json_documents.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "data/preparation/json_line.h"
#include "framework/storage/strict_json.h"

namespace ringtrain {

namespace {

using nlohmann::json;

[[noreturn]] void refuse(const std::string& why) {
  throw std::runtime_error(why);
}

struct LineField {
  std::string_view raw;
  bool learned = true;
};

LineField field_of(const JsonField& field, const std::string& name, bool learned) {
  if (!field.there) refuse(fmt::format("no field \"{}\"", name));
  if (!field.is_text) refuse(fmt::format("the field \"{}\" is no text", name));
  return {field.raw, learned};
}

/// Returns the texts of a line that is no conversation.
std::vector<LineField> fields_of(const JsonLine& line, const JsonRules& rules) {
  if (line.text.there || !line.completion.there) return {field_of(line.text, rules.text_field, true)};
  return {field_of(line.prompt, "prompt", false), field_of(line.completion, "completion", true)};
}

bool is_conversation(const JsonLine& line, const JsonRules& rules) {
  if (!line.conversation || (line.text.there && rules.text_field_named)) return false;
  if (!line.text.there) return true;
  refuse(
      fmt::format("there are a conversation and \"{}\"; name the field with --text-field to take the text, or "
                  "remove it",
                  rules.text_field));
}

/// Returns the conversation of a line that holds one.
JsonDocument conversation_of(std::string_view line, const JsonRules& rules, const ChatFormat& format) {
  const json object = parse_strict_json(line, {.bytes = line.size(), .depth = 64, .expansion = 32});
  const std::optional<Conversation> conversation = read_conversation(object, rules.train_on);
  JsonDocument document;
  document.parts = format.parts(conversation.value(), false, &document.left_out);
  for (const Message& message : *conversation) {
    if (std::ranges::find(document.roles, message.role) == document.roles.end()) {
      document.roles.push_back(message.role);
    }
  }
  return document;
}

}  // namespace

JsonDocument parse_json_document(std::string_view line, const JsonRules& rules, const ChatFormat& format) {
  const JsonLine found = scan_json_line(line, rules.text_field);
  if (is_conversation(found, rules)) return conversation_of(line, rules, format);
  JsonDocument document;
  for (const auto& [raw, learned] : fields_of(found, rules)) {
    std::string text(raw.size(), '\0');
    text.resize(unescape_json(raw, text.data(), &document.replaced));
    document.parts.push_back({.text = std::move(text), .learned = learned});
  }
  return document;
}

LineTexts take_texts(std::span<char> line, const JsonRules& rules) {
  const JsonLine found = scan_json_line({line.data(), line.size()}, rules.text_field);
  if (is_conversation(found, rules)) refuse("a conversation of more than 16 MiB");
  std::vector<LineField> fields = fields_of(found, rules);
  // Each is moved forward, so the first in the line comes first.
  const bool answer_first = fields.size() == 2 && fields[1].raw.data() < fields[0].raw.data();
  if (answer_first) std::swap(fields[0], fields[1]);
  LineTexts texts;
  for (const auto& [raw, learned] : fields) {
    const std::size_t bytes = unescape_json(raw, line.data() + texts.bytes, &texts.replaced);
    texts.bytes += bytes;
    if (!learned) texts.prompt_bytes = bytes;
  }
  if (answer_first) {
    char* const begin = line.data();
    std::rotate(begin, begin + (texts.bytes - texts.prompt_bytes), begin + texts.bytes);
  }
  return texts;
}

}  // namespace ringtrain
