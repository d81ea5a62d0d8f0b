// A line of JSONL as a document: the text of one field, or a prompt with its completion. Only the completion is
// learned.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace ringtrain {

struct JsonRules {
  std::string text_field = "text";
  bool text_field_named = false;  // by the user: it has precedence over all other fields of a line
};

/// A document that was extracted from its line.
struct LineTexts {
  std::size_t bytes = 0, prompt_bytes = 0;  // of all texts; the first of them, which are not learned
  std::int64_t replaced = 0;                // unpaired surrogates
};

/// Moves the texts of a line to the line's beginning, in place, without a copy. Throws a std::exception that describes
/// the problem of the line; for a conversation it names the program that reads it.
LineTexts take_texts(std::span<char> line, const JsonRules& rules);

}  // namespace ringtrain
