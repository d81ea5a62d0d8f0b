// A line of JSONL as a document: the text of one field, a conversation, of which only some roles are to be learned, or
// a prompt with its completion, of which the completion is.
#pragma once

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
};

/// Returns what a line holds. Throws Error(usage) if it is a conversation and the format cannot be written, another
/// std::exception that says what is wrong with the line.
JsonDocument parse_json_document(std::string_view line, const JsonRules& rules, const ChatFormat& format);

}  // namespace ringtrain
