// What the files of a data set are, told by their names and their first bytes, so that none is trained as its own
// markup: a form that prepare does not read is refused in a sentence that says what does.
#pragma once

#include <string>
#include <string_view>

namespace ringtrain {

/// What reads the data sets that prepare does not, for a sentence.
inline constexpr std::string_view convert_advice =
    "make a token file of it with `python -m ringtrain_data convert --input FILE --tokenizer DIR --output tokens.h5`";

/// Returns whether a file of this name holds a document a line (.jsonl, .ndjson, compressed or not).
bool is_json_lines(std::string_view path);
/// Returns whether a file of this name is data of a known form, read here or not.
bool is_data_name(std::string_view name);
/// Returns whether a file of this name describes a data set: README*, LICENSE*, *.md, what begins with a dot.
bool is_card_name(std::string_view name);
/// Returns whether a folder holds data of known forms, and nothing else but files that describe them. Whatever cannot
/// be read in it is passed over.
bool is_data_folder(const std::string& path);
/// Returns whether a file that begins with these bytes is of a form that is no text.
bool is_foreign(std::string_view first_bytes);

/// Returns whether a file of a data set holds a document a line: by its name, or as a .json whose lines are objects.
/// Throws Error(data) if it is of another form than that and text, or cannot be read.
bool holds_json_lines(const std::string& path);

}  // namespace ringtrain
