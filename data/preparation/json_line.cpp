#include "data/preparation/json_line.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <stdexcept>

#include "data/tokenizer/unicode.h"

namespace ringtrain {

namespace {

constexpr std::size_t max_depth = 64;

class LineScanner {
 public:
  explicit LineScanner(std::string_view line) : line_(line) {
    if (line.starts_with("\xEF\xBB\xBF")) at_ = 3;  // a byte order mark
  }

  JsonLine scan(std::string_view text_field) {
    JsonLine found;
    if (!take('{')) throw std::runtime_error("not a JSON object");
    for (bool first = true; !take('}'); first = false) {
      if (!first) require(',');
      const std::string name = key();
      const std::array<std::pair<std::string_view, JsonField*>, 3> fields{
          {{text_field, &found.text}, {"prompt", &found.prompt}, {"completion", &found.completion}}};
      const std::size_t begin = value();
      for (const auto& [wanted, field] : fields) {
        if (name != wanted) continue;
        if (field->there) throw std::runtime_error(fmt::format("the field {} appears twice", wanted));
        *field = field_of(line_.substr(begin, at_ - begin));
      }
      found.conversation = found.conversation || name == "messages" || name == "conversations";
    }
    skip_space();
    if (at_ < line_.size()) refuse("there is text after the object");
    found.conversation = found.conversation || (found.completion.there && !found.completion.is_text);
    return found;
  }

 private:
  [[noreturn]] void refuse(const char* why) const {
    throw std::runtime_error(fmt::format("at byte {} of the line: {}", at_ + 1, why));
  }
  static JsonField field_of(std::string_view value) {
    if (value == "null") return {true, true, {}};
    if (value.front() != '"') return {true, false, {}};
    return {true, true, value.substr(1, value.size() - 2)};
  }
  void skip_space() {
    while (at_ < line_.size() && std::strchr(" \t\r\n", line_[at_]) && line_[at_] != '\0') ++at_;
  }
  bool take(char wanted) {
    skip_space();
    const bool there = at_ < line_.size() && line_[at_] == wanted;
    at_ += there;
    return there;
  }
  void require(char wanted) {
    if (!take(wanted)) throw std::runtime_error(fmt::format("at byte {} of the line: expected '{}'", at_ + 1, wanted));
  }
  std::string key() {
    skip_space();
    const std::string_view raw = string();
    require(':');
    std::string name(raw.size(), '\0');
    std::int64_t lone = 0;
    name.resize(unescape_json(raw, name.data(), &lone));
    return name;
  }
  /// Skips a string. Returns the text between its quotes.
  std::string_view string() {
    require('"');
    const std::size_t begin = at_;
    for (; at_ < line_.size() && line_[at_] != '"'; ++at_) {
      if (static_cast<unsigned char>(line_[at_]) < 0x20) refuse("a control character in a string");
      if (line_[at_] == '\\') skip_escape();
    }
    if (at_ == line_.size()) refuse("a string without an end");
    return line_.substr(begin, at_++ - begin);
  }
  /// Moves to the last byte of an escape.
  void skip_escape() {
    const char kind = ++at_ < line_.size() ? line_[at_] : '\0';
    if (kind == 'u') {
      const std::string_view digits = line_.substr(at_ + 1, 4);
      if (digits.size() < 4 || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos) {
        refuse("\\u without four hexadecimal digits");
      }
      at_ += 4;
    } else if (!std::strchr("\"\\/bfnrt", kind) || kind == '\0') {
      refuse("an unknown escape");
    }
  }
  void word() {
    const std::string_view tail = line_.substr(at_);
    for (const std::string_view known : {"true", "false", "null", "NaN", "Infinity", "-Infinity"}) {
      if (!tail.starts_with(known)) continue;
      at_ += known.size();
      return;
    }
    const std::string_view number = tail.substr(0, tail.find_first_not_of("+-.0123456789eE"));
    double value = 0;
    const auto parsed = std::from_chars(number.data(), number.data() + number.size(), value);
    if (number.empty() || parsed.ptr != number.data() + number.size()) refuse("not a JSON value");
    at_ += number.size();
  }
  /// Skips a value of any depth. Returns the index at which it begins.
  std::size_t value() {
    skip_space();
    const std::size_t begin = at_;
    std::string open;  // the closing brackets of the enclosing values
    do {
      if (take('{') || take('[')) {
        open.push_back(line_[at_ - 1] == '{' ? '}' : ']');
        if (open.size() >= max_depth) throw std::runtime_error(fmt::format("nested deeper than {} levels", max_depth));
        if (!take(open.back())) {
          if (open.back() == '}') key();
          continue;
        }
        open.pop_back();
      } else if (at_ < line_.size() && line_[at_] == '"') {
        string();
      } else {
        word();
      }
      while (!open.empty() && !take(',')) {
        require(open.back());
        open.pop_back();
      }
      if (!open.empty() && open.back() == '}') key();
    } while (!open.empty());
    return begin;
  }

  std::string_view line_;
  std::size_t at_ = 0;
};

/// Returns the number with these four hexadecimal digits.
char32_t code_unit(std::string_view digits) {
  std::uint32_t value = 0;
  std::from_chars(digits.data(), digits.data() + 4, value, 16);
  return value;
}

/// Returns the code point of the \u at `at`, and moves to its last digit; returns U+FFFD for an unpaired surrogate.
char32_t code_point(std::string_view raw, std::size_t& at, std::int64_t* lone) {
  const char32_t first = code_unit(raw.substr(at + 2));
  at += 5;
  if (first < 0xD800 || first > 0xDFFF) return first;
  if (first < 0xDC00 && raw.substr(at + 1).starts_with("\\u")) {
    const char32_t second = code_unit(raw.substr(at + 3));
    if (second >= 0xDC00 && second <= 0xDFFF) {
      at += 6;
      return 0x10000 + ((first - 0xD800) << 10) + (second - 0xDC00);
    }
  }
  ++*lone;
  return 0xFFFD;
}

}  // namespace

JsonLine scan_json_line(std::string_view line, std::string_view text_field) {
  return LineScanner(line).scan(text_field);
}

std::size_t unescape_json(std::string_view raw, char* to, std::int64_t* lone) {
  constexpr std::string_view names = "bfnrt", meanings = "\b\f\n\r\t";
  char* out = to;
  for (std::size_t at = 0; at < raw.size(); ++at) {
    const std::size_t escape = std::min(raw.find('\\', at), raw.size());
    std::memmove(out, raw.data() + at, escape - at);
    out += escape - at;
    at = escape;
    if (at == raw.size()) break;
    std::string written;
    if (raw[at + 1] == 'u') {
      append_utf8(written, code_point(raw, at, lone));
    } else {
      const std::size_t name = names.find(raw[++at]);
      written = name == std::string_view::npos ? raw[at] : meanings[name];
    }
    out = std::ranges::copy(written, out).out;
  }
  return static_cast<std::size_t>(out - to);
}

}  // namespace ringtrain
