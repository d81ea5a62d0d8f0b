// Recognizes the forms of a data set's files by their names and first bytes, so that no markup is trained as text: a
// form that prepare does not read is refused with a message that names a program that does.
#pragma once

#include <string>
#include <string_view>

namespace ringtrain {

/// The program that reads data sets that prepare does not, for messages.
inline constexpr std::string_view convert_advice =
    "convert this file with `python3 -m ringtrain_data convert --input FILE --tokenizer DIR --output tokens.h5` "
    "(docs/datasets.md)";

/// Returns whether a file of this name has one document per line (.jsonl, .ndjson, compressed or not).
bool is_json_lines(std::string_view path);
/// Returns whether a file of this name is data of a known form, whether prepare reads it or not.
bool is_data_name(std::string_view name);
/// Returns whether a file of this name describes a data set: README*, LICENSE*, *.md, or a name that begins with a dot.
bool is_card_name(std::string_view name);
/// Returns whether a folder contains data of known forms, and otherwise only files that describe them. Entries that
/// cannot be read are skipped.
bool is_data_folder(const std::string& path);
/// Returns whether a file that begins with these bytes has a form that is not text.
bool is_foreign(std::string_view first_bytes);

/// Returns whether a file of a data set has one document per line: by its name, or as a .json whose lines are objects.
/// Throws Error(data) if it has neither this form nor that of text, or cannot be read.
bool holds_json_lines(const std::string& path);

}  // namespace ringtrain
