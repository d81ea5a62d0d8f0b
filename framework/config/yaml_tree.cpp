#include "framework/config/yaml_tree.h"

#include <fmt/core.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <sstream>

#include "framework/config/config_problems.h"
#include "framework/text/utf8.h"

namespace ringtrain {

namespace {

constexpr int deepest = 32;

/// What YAML allows and a config does not.
struct Unsupported : YAML::ParserException {
  using YAML::ParserException::ParserException;
};

/// Throws Unsupported for a text that a config must not have, before yaml-cpp makes nodes of it.
class Checker : public YAML::EventHandler {
 public:
  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++documents_ == 1) return;  // yaml-cpp silently ends a document at text with which it cannot continue it
    throw Unsupported(mark, "not valid YAML: the document ends above this line, which does not belong to it");
  }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { check(mark, anchor, ""); }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    throw Unsupported(mark, "an alias (*name) is not supported; write the value itself");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, const std::string&) override {
    check(mark, anchor, tag);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, anchor, tag);
  }
  void OnSequenceEnd() override { --depth_; }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, anchor, tag);
  }
  void OnMapEnd() override { --depth_; }

 private:
  /// tag: yaml-cpp gives "?" for a plain scalar or collection, "!" for a quoted scalar, "" for a block one.
  static void check(const YAML::Mark& mark, YAML::anchor_t anchor, const std::string& tag) {
    if (anchor != 0) throw Unsupported(mark, "an anchor (&name) is not supported; write the value where it is used");
    if (!tag.empty() && tag != "?" && tag != "!") {
      throw Unsupported(mark, fmt::format("the tag {} is not supported; leave it out", tag));
    }
  }
  void open(const YAML::Mark& mark, YAML::anchor_t anchor, const std::string& tag) {
    check(mark, anchor, tag);
    if (depth_++ == deepest) throw Unsupported(mark, fmt::format("this is nested deeper than {} levels", deepest));
  }
  int documents_ = 0, depth_ = 0;
};

YamlValue value_of(const YAML::Node& node) {
  YamlValue value;
  value.line = node.Mark().line + 1;
  if (node.IsScalar()) {
    value.kind = YamlValue::Kind::scalar;
    value.text = node.Scalar();
    value.quoted = node.Tag() == "!";
  } else if (node.IsSequence()) {
    value.kind = YamlValue::Kind::list;
    for (const YAML::Node& item : node) value.items.push_back(value_of(item));
  } else if (node.IsMap()) {
    value.kind = YamlValue::Kind::map;
    for (const auto& entry : node) {
      if (!entry.first.IsScalar()) throw Unsupported(entry.first.Mark(), "a key must be a name");
      value.entries.push_back({entry.first.Scalar(), entry.first.Mark().line + 1, value_of(entry.second)});
    }
  }
  return value;
}

/// Returns the byte at which the line of another byte begins.
std::size_t begin_of_line(const std::string& text, std::size_t byte) {
  return byte == 0 ? 0 : text.rfind('\n', byte - 1) + 1;  // npos + 1 is 0
}

/// Returns the error for what yaml-cpp has found, with the likely cause and its position.
YamlError likely_error(const std::string& text, const YAML::Exception& found) {
  const std::size_t at = found.mark.is_null() ? 0 : static_cast<std::size_t>(found.mark.pos);
  if (dynamic_cast<const Unsupported*>(&found) != nullptr) return {text, at, found.msg};
  const auto invalid = [&](std::size_t byte, const std::string& cause) {
    return YamlError(text, byte, "not valid YAML: " + cause);
  };
  if (found.msg == YAML::ErrorMsg::EOF_IN_SCALAR) {  // a later quote would have closed it
    const std::size_t quote = text.rfind(std::ranges::count(text, '"') % 2 == 1 ? '"' : '\'');
    return invalid(std::min(quote, text.find_last_of("\"'")), "this quote is not closed");
  }
  if (found.msg == YAML::ErrorMsg::END_OF_SEQ_FLOW || found.msg == YAML::ErrorMsg::END_OF_MAP_FLOW) {
    std::size_t open = text.size();
    for (int closed = 0; closed >= 0 && open > 0;) {
      const char c = text[--open];
      closed += (c == ']' || c == '}' ? 1 : 0) - (c == '[' || c == '{' ? 1 : 0);
    }
    return invalid(open, fmt::format("this {} is not closed", text[open]));
  }
  const std::size_t begin = begin_of_line(text, at), indent = text.find_first_not_of(' ', begin);
  if (indent < text.size() && text[indent] == '\t') return invalid(indent, "a tab indents the line; use spaces");
  if (found.msg == YAML::ErrorMsg::END_OF_MAP)
    return invalid(at, "this does not continue the section; check indentation and quotes");
  if (found.msg == YAML::ErrorMsg::UNKNOWN_ANCHOR) return invalid(at, "a value that begins with * needs quotes");
  if (found.msg != YAML::ErrorMsg::MAP_VALUE) return invalid(at, found.msg);
  const std::size_t end_above = begin == 0 ? 0 : text.find_last_not_of(" \r\n", begin - 1) + 1;
  const std::size_t above = begin_of_line(text, end_above), key = text.find_first_not_of(' ', above);
  const std::size_t colon = std::min(text.find(':', above), end_above);
  if (end_above > 0 && text[key] != '#' && colon == end_above) return invalid(key, "a colon is missing after this key");
  if (colon + 1 < end_above && text[key] != '#') {
    if (text[colon + 1] != ' ') return invalid(colon, "a space is missing after this colon");
    if (indent - begin > key - above)
      return invalid(indent, "this has more indentation than the line above, which has a value");
  }
  return invalid(at, "a value that contains a colon and a space needs quotes");
}

}  // namespace

YamlError::YamlError(const std::string& text, std::size_t byte, const std::string& what) : std::runtime_error(what) {
  const std::size_t begin = begin_of_line(text, byte);
  const auto lines_above = std::count(text.data(), text.data() + begin, '\n');
  position_ = fmt::format("{}:{}", lines_above + 1, byte - begin + 1);
  line_ = excerpt(text.substr(begin, text.find('\n', begin) - begin));
}

std::string YamlError::in_file(const std::string& path) const {
  return fmt::format("{}:{}: {}\n  {}", path, position_, what(), line_);
}

void check_yaml_text(const std::string& text) {
  const std::size_t good = well_formed_prefix(text);
  for (std::size_t i = 0; i < text.size(); ++i) {
    const unsigned byte = static_cast<unsigned char>(text[i]);
    if (i == good) throw YamlError(text, i, fmt::format("the byte 0x{:02X} is not UTF-8 text", byte));
    if ((byte < 0x20 && byte != '\t' && byte != '\n' && byte != '\r') || byte == 0x7F) {
      throw YamlError(text, i, fmt::format("the control character 0x{:02X} is not allowed in a config", byte));
    }
  }
}

YamlValue parse_yaml(const std::string& text) {
  check_yaml_text(text);
  // yaml-cpp accepts a quote that is still open at the end of the text if a line end comes before.
  const std::string content = text.substr(0, text.find_last_not_of("\r\n") + 1);
  try {
    std::istringstream stream(content);
    YAML::Parser parser(stream);
    Checker checker;
    while (parser.HandleNextDocument(checker)) {
    }
    return value_of(YAML::Load(content));
  } catch (const YAML::Exception& error) {
    throw likely_error(text, error);
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
