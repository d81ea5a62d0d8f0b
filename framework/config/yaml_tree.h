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

/// A problem of a text, and its line.
class YamlError : public std::runtime_error {
 public:
  YamlError(int line, const std::string& what) : std::runtime_error(what), line_(line) {}
  int line() const { return line_; }

 private:
  int line_;
};

/// Returns the text's only document; its kind is null if it is empty. Throws YamlError.
YamlValue parse_yaml(const std::string& text);

/// Returns text as a double-quoted YAML scalar, which parse_yaml reads back to the same text.
std::string quoted_yaml(const std::string& text);

/// Returns why YAML cannot contain a text, with the line (not UTF-8, or a control character), or "" if it can.
std::string unfit_for_yaml(const std::string& text, int* line);

}  // namespace ringtrain
