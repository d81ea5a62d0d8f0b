// A line of JSONL as a document: the text of one field, or a prompt with its completion, of which the completion is
// learned.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace ringtrain {

struct JsonRules {
  std::string text_field = "text";
  bool text_field_named = false;  // by the user: it goes before all else in a line
};

/// A document that was taken out of its line.
struct LineTexts {
  std::size_t bytes = 0, prompt_bytes = 0;  // of all; of those, the first that are not learned
  std::int64_t replaced = 0;                // surrogates that had no other half
};

/// Moves what a line holds to the line's beginning, in place: no copy is made. Throws a std::exception that says what
/// is wrong with the line, and for a conversation one that says what reads it.
LineTexts take_texts(std::span<char> line, const JsonRules& rules);

}  // namespace ringtrain
