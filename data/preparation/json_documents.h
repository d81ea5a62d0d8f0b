// A line of JSONL as a document: the text of one field, or the messages of a conversation, of which only some roles are
// to be learned.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer/tokenizer.h"

namespace ringtrain {

struct JsonRules {
  std::string text_field = "text";
  std::vector<std::string> train_on;  // roles that carry loss weight; none: assistant
};

/// A stretch of a document: text, or one special token.
struct DocumentPart {
  std::string text;
  std::optional<std::int32_t> token;
  float weight = 1;
};

/// How conversations are written down: <|im_start|>role LF content <|im_end|> LF where the tokenizer has these tokens
/// (ChatML), else "role: content" LF.
struct ChatForm {
  std::optional<std::int32_t> start, end;
  explicit ChatForm(const Tokenizer& tokenizer)
      : start(tokenizer.find_special("<|im_start|>")), end(tokenizer.find_special("<|im_end|>")) {}
};

/// Returns the parts of a line, with weights 0 and 1 for messages. Throws std::exception that says what is wrong with
/// the line.
std::vector<DocumentPart> parse_json_document(std::string_view line, const JsonRules& rules, const ChatForm& form);

}  // namespace ringtrain
