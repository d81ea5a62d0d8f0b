// Scans one line of JSONL for the few texts in it that are needed. Nothing else is built, so a line needs no memory in
// addition to its own. The syntax is that of existing data sets: NaN and Infinity are numbers, null is an empty text,
// and half of a surrogate pair is U+FFFD.
#pragma once

#include <cstdint>
#include <string_view>

namespace ringtrain {

/// A field of the line's object.
struct JsonField {
  bool there = false, is_text = false;  // null is a text
  std::string_view raw;                 // the text between its quotes, with its escapes
};

struct JsonLine {
  JsonField text, prompt, completion;
  bool conversation = false;  // it has "messages", "conversations", or a "completion" that is not text
};

/// Returns the fields of a line as views of it. Throws an std::exception that describes the problem if the line is not
/// an object, is nested deeper than 64 levels, or has one of these fields twice.
JsonLine scan_json_line(std::string_view line, std::string_view text_field);

/// Writes a text that scan_json_line() found without its escapes. The result is never longer, so `to` may be the
/// position of the text or an earlier one. Returns its bytes. Adds the number of unpaired surrogates to *lone.
std::size_t unescape_json(std::string_view raw, char* to, std::int64_t* lone);

}  // namespace ringtrain
