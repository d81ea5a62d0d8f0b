// YAML text as a plain tree that keeps what yaml-cpp's own nodes lose: the line of every key, duplicate keys in their
// order, and whether a scalar was quoted. It covers the part of YAML that a config needs: one document of maps, lists,
// and scalars. Anchors, aliases, and tags are refused (an alias can make a text endless).
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

namespace ringtrain {

struct YamlEntry;

struct YamlValue {
  enum class Kind { null, scalar, list, map };
  Kind kind = Kind::null;
  int line = 0;         // from 1
  std::string text;     // of a scalar
  bool quoted = false;  // a quoted scalar is text, never a number or a boolean
  std::vector<YamlValue> items;
  std::vector<YamlEntry> entries;
};

struct YamlEntry {
  std::string key;
  int line = 0;
  YamlValue value;
};

/// A problem of a text.
class YamlError : public std::runtime_error {
 public:
  /// byte: of the text, where the problem is.
  YamlError(const std::string& text, std::size_t byte, const std::string& what);
  /// Returns the message about a file: "PATH:LINE:COLUMN: what", and the line itself below it.
  std::string in_file(const std::string& path) const;

 private:
  std::string position_, line_;
};

/// Returns the text's only document; its kind is null if it is empty. Throws YamlError.
YamlValue parse_yaml(const std::string& text);

/// Returns text as a double-quoted YAML scalar, which parse_yaml reads back to the same text.
std::string quoted_yaml(const std::string& text);

/// Throws YamlError if YAML cannot contain a text: it is not UTF-8, or has a control character.
void check_yaml_text(const std::string& text);

}  // namespace ringtrain
