// A line of JSONL as a document: the text of one field, a conversation, of which only some roles are to be learned, or
// a prompt with its completion, of which the completion is.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/chat/chat_format.h"

namespace ringtrain {

struct JsonRules {
  std::string text_field = "text";
  bool text_field_named = false;                   // by the user: it goes before all else in a line
  std::vector<std::string> train_on{"assistant"};  // roles that carry loss weight
};

struct JsonDocument {
  std::vector<DocumentPart> parts;
  std::vector<std::string> roles;  // of a conversation, each once; none: it is no conversation
  std::int64_t left_out = 0;       // system messages that the template leaves out
  std::int64_t replaced = 0;       // surrogates that had no other half
};

/// Returns what a line holds. Throws Error(usage) if it is a conversation and the format cannot be written, another
/// std::exception that says what is wrong with the line.
JsonDocument parse_json_document(std::string_view line, const JsonRules& rules, const ChatFormat& format);

/// A document that was taken out of its line.
struct LineTexts {
  std::size_t bytes = 0, prompt_bytes = 0;  // of all; of those, the first that are not learned
  std::int64_t replaced = 0;                // surrogates that had no other half
};

/// Moves what a line holds to the line's beginning, in place: for a line of which no copy should be made. Throws a
/// std::exception as parse_json_document() does, and for a conversation.
LineTexts take_texts(std::span<char> line, const JsonRules& rules);

}  // namespace ringtrain
