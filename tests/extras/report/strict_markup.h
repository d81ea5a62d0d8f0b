// Reads markup as a strict parser of XML does: every element is closed in turn, every attribute quoted and given once,
// no bare & or <. It knows no more than the pages of `report` need: five entities, and a document type to pass over.
#pragma once

#include <cctype>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace ringtrain::testing {

struct Element {
  std::string name, text;  // text: its own, without that of its children
  std::map<std::string, std::string> attributes;
  std::vector<std::unique_ptr<Element>> children;

  /// Returns all elements of a name within this one, in their order.
  std::vector<const Element*> all(const std::string& wanted) const {
    std::vector<const Element*> found;
    for (const auto& child : children) {
      if (child->name == wanted) found.push_back(child.get());
      for (const Element* inner : child->all(wanted)) found.push_back(inner);
    }
    return found;
  }
};

class StrictMarkup {
 public:
  /// Returns the root. Throws std::runtime_error for what is not well-formed.
  static std::unique_ptr<Element> parse(const std::string& text) {
    StrictMarkup reader(text);
    reader.space();
    if (reader.rest_.starts_with("<!DOCTYPE")) reader.until('>');
    reader.space();
    auto root = reader.element();
    reader.space();
    if (!reader.rest_.empty()) reader.refuse("something after the root");
    return root;
  }

 private:
  explicit StrictMarkup(const std::string& text) : rest_(text), length_(text.size()) {}
  [[noreturn]] void refuse(const std::string& what) const {
    throw std::runtime_error(what + " at byte " + std::to_string(length_ - rest_.size()));
  }
  char peek() const { return rest_.empty() ? '\0' : rest_.front(); }
  void take(char wanted) {
    if (peek() != wanted) refuse(std::string("no ") + wanted);
    rest_.remove_prefix(1);
  }
  std::string until(char end) {
    const std::size_t place = rest_.find(end);
    if (place == std::string_view::npos) refuse(std::string("no ") + end);
    std::string before(rest_.substr(0, place));
    rest_.remove_prefix(place + 1);
    return before;
  }
  void space() {
    while (std::isspace(static_cast<unsigned char>(peek()))) rest_.remove_prefix(1);
  }
  std::string name() {
    std::string word;
    while (std::isalnum(static_cast<unsigned char>(peek())) || peek() == '-') {
      word += peek();
      rest_.remove_prefix(1);
    }
    if (word.empty()) refuse("no name");
    return word;
  }
  std::string decoded(const std::string& raw) const {
    static const std::map<std::string, char> entities{
        {"lt", '<'}, {"gt", '>'}, {"amp", '&'}, {"quot", '"'}, {"apos", '\''}};
    std::string text;
    for (std::size_t i = 0; i < raw.size(); ++i) {
      if (raw[i] == '<') refuse("a bare <");
      if (raw[i] != '&') {
        text += raw[i];
        continue;
      }
      const std::size_t end = raw.find(';', i);
      const auto entity = entities.find(raw.substr(i + 1, end == std::string::npos ? 0 : end - i - 1));
      if (entity == entities.end()) refuse("a bare &");
      text += entity->second;
      i = end;
    }
    return text;
  }
  std::unique_ptr<Element> element() {
    take('<');
    auto self = std::make_unique<Element>();
    self->name = name();
    for (space(); peek() != '>' && peek() != '/'; space()) {
      const std::string attribute = name();
      take('=');
      take('"');
      if (!self->attributes.emplace(attribute, decoded(until('"'))).second) refuse("an attribute given twice");
    }
    if (peek() == '/') {
      take('/');
      take('>');
      return self;
    }
    take('>');
    while (true) {
      const std::size_t place = rest_.find('<');
      if (place == std::string_view::npos) refuse("no end of " + self->name);
      self->text += decoded(std::string(rest_.substr(0, place)));
      rest_.remove_prefix(place);
      if (!rest_.starts_with("</")) {
        self->children.push_back(element());
        continue;
      }
      rest_.remove_prefix(2);
      if (name() != self->name) refuse("not the end of " + self->name);
      take('>');
      return self;
    }
  }

  std::string_view rest_;
  std::size_t length_;
};

}  // namespace ringtrain::testing
