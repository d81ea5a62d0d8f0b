#include "framework/config/yaml_tree.h"

#include <fmt/core.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <sstream>
#include <utility>

#include "framework/text/utf8.h"

namespace ringtrain {

namespace {

constexpr std::size_t deepest = 32;

/// Builds the tree from yaml-cpp's events: a stack of the lists and maps that are still open.
class TreeBuilder : public YAML::EventHandler {
 public:
  YamlValue take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(made(mark, YamlValue::Kind::null, anchor));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    throw YamlError(mark.line + 1, "an alias (*name) is not supported; write the value itself");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    YamlValue scalar = made(mark, YamlValue::Kind::scalar, anchor, tag);
    scalar.text = value;
    scalar.quoted = tag == "!";
    add(std::move(scalar));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlValue::Kind::list);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlValue::Kind::map);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Open {
    YamlValue value;
    bool has_key = false;
    YamlEntry entry;  // in a map: the key that waits for its value
  };

  /// tag: yaml-cpp gives "?" for a plain scalar or collection, "!" for a quoted scalar, "" for a block one.
  static YamlValue made(const YAML::Mark& mark, YamlValue::Kind kind, YAML::anchor_t anchor,
                        const std::string& tag = "") {
    YamlValue value;
    value.kind = kind;
    value.line = mark.line + 1;
    if (anchor != 0) {
      throw YamlError(value.line, "an anchor (&name) is not supported; write the value where it is used");
    }
    if (!tag.empty() && tag != "?" && tag != "!") {
      throw YamlError(value.line, fmt::format("the tag {} is not supported; leave it out", tag));
    }
    return value;
  }
  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, YamlValue::Kind kind) {
    YamlValue value = made(mark, kind, anchor, tag);
    if (stack_.size() == deepest) {
      throw YamlError(value.line, fmt::format("is nested deeper than {} levels", deepest));
    }
    stack_.push_back({std::move(value), false, {}});
  }
  void close() {
    YamlValue value = std::move(stack_.back().value);
    stack_.pop_back();
    add(std::move(value));
  }
  void add(YamlValue value) {
    if (stack_.empty()) {
      root_ = std::move(value);
      return;
    }
    Open& parent = stack_.back();
    if (parent.value.kind == YamlValue::Kind::list) {
      parent.value.items.push_back(std::move(value));
    } else if (!parent.has_key) {
      if (value.kind != YamlValue::Kind::scalar) throw YamlError(value.line, "a key must be a name");
      parent.entry.key = std::move(value.text);
      parent.entry.line = value.line;
      parent.has_key = true;
    } else {
      parent.entry.value = std::move(value);
      parent.value.entries.push_back(std::move(parent.entry));
      parent.entry = {};
      parent.has_key = false;
    }
  }

  std::vector<Open> stack_;
  YamlValue root_;
};

}  // namespace

std::string unfit_for_yaml(const std::string& text, int* line) {
  *line = 1;
  const std::size_t good = well_formed_prefix(text);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const unsigned byte = static_cast<unsigned char>(text[i]);
    if (i == good) return fmt::format("the byte 0x{:02X} is not UTF-8 text", byte);
    if ((byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r') || byte == 0x7F) {
      return fmt::format("the control character 0x{:02X} is not allowed in a config", byte);
    }
    if (byte == '\n') ++*line;
  }
  return {};
}

YamlValue parse_yaml(const std::string& text) {
  int line = 0;
  if (const std::string unfit = unfit_for_yaml(text, &line); !unfit.empty()) throw YamlError(line, unfit);
  try {
    // yaml-cpp accepts a quote that is still open at the end of the text if a line end comes before.
    std::istringstream stream(text.substr(0, text.find_last_not_of("\r\n") + 1));
    YAML::Parser parser(stream);
    TreeBuilder first, second;
    if (!parser.HandleNextDocument(first)) return {};
    // yaml-cpp also silently ends a document at text with which it cannot continue it.
    if (parser.HandleNextDocument(second)) {
      throw YamlError(second.take().line,
                      "not valid YAML: the document ends before this line, which does not belong to it");
    }
    return first.take();
  } catch (const YAML::Exception& error) {
    throw YamlError(error.mark.is_null() ? 1 : error.mark.line + 1,
                    fmt::format("not valid YAML: {} (column {})", error.msg, error.mark.column + 1));
  }
}

std::string quoted_yaml(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (byte < 0x20 || byte == 0x7F) {
      result += fmt::format("\\x{:02x}", byte);
    } else {
      result += c;
    }
  }
  return result + "\"";
}

}  // namespace ringtrain
