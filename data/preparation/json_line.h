// One line of JSONL, scanned for the few texts in it that are read. Nothing else is built, so a line needs no memory
// beyond its own. It is read as data sets are written: NaN and Infinity are numbers, null is an empty text, and half of
// a surrogate pair is U+FFFD.
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
  bool conversation = false;  // there is "messages", "conversations", or a "completion" that is no text
};

/// Returns what a line holds; the views are into the line. Throws an std::exception that says what is wrong if the line
/// is no object, is nested deeper than 64 levels, or has one of these fields twice.
JsonLine scan_json_line(std::string_view line, std::string_view text_field);

/// Writes a text that scan_json_line() found without its escapes. It is never longer: `to` may be where the text
/// stands, or before it. Returns its bytes. Adds to *lone how many surrogates had no other half.
std::size_t unescape_json(std::string_view raw, char* to, std::int64_t* lone);

}  // namespace ringtrain
