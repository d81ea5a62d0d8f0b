#include "data/tokenizer/pattern.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "framework/error.h"

namespace ringtrain {

namespace {

// \s and \S for use within brackets, spelled out as the property White_Space: PCRE2's \s also matches U+180E.
constexpr std::string_view white_space_class =
    R"(\x{09}-\x{0D}\x{20}\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";
constexpr std::string_view no_white_space_class =
    R"(\x{00}-\x{08}\x{0E}-\x{1F}\x{21}-\x{84}\x{86}-\x{9F}\x{A1}-\x{167F}\x{1681}-\x{1FFF}\x{200B}-\x{2027})"
    R"(\x{202A}-\x{202E}\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-\x{10FFFF})";

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool is_quantifier(std::string_view text) {
  return !text.empty() && std::string_view("*+?{").find(text[0]) != std::string_view::npos;
}

class Reader {
 public:
  Reader(const std::string& pattern, const std::string& where) : pattern_(pattern), tail_(pattern), where_(where) {}

  std::string read() {
    while (!tail_.empty()) {
      if (tail_.starts_with('[')) {
        read_brackets();
      } else if (tail_.starts_with('\\')) {
        if (tail_.starts_with("\\S") || tail_.starts_with("\\s")) {
          result_ += fmt::format("[{}]", take(2) == "\\s" ? white_space_class : no_white_space_class);
        } else {
          read_escape();
        }
      } else if (tail_.starts_with("(?i:")) {
        read_any_case();
      } else if (tail_.starts_with('(')) {
        read_group();
      } else if (tail_.starts_with(')')) {
        result_ += take(1);
        if (groups_.empty()) refuse(")", "which closes no group");
        if (groups_.back() && is_quantifier(tail_)) refuse(tail_.substr(0, 1), "after a look-around");
        groups_.pop_back();
      } else if (is_quantifier(tail_)) {
        read_quantifier();
      } else if (tail_.starts_with('^') || tail_.starts_with('$')) {
        const bool at_end = tail_[0] == '$' && result_.ends_with("]++");  // its last item matches all white space
        if (!at_end || !pattern_.substr(0, pattern_.size() - tail_.size()).ends_with("\\s++"))
          refuse(tail_.substr(0, 1));
        take(1);
        result_ += "\\z";
      } else {
        result_ += take(1);
      }
    }
    return std::move(result_);
  }

 private:
  [[noreturn]] void refuse(std::string_view what, std::string_view which = "") const {
    fail(ExitCode::data,
         "{}: its pattern {} has {}{}{} at byte {}, which regular expression engines interpret in different ways; use "
         "a tokenizer with another pattern",
         where_, pattern_, what, which.empty() ? "" : " ", which, pattern_.size() - tail_.size());
  }
  std::string_view take(std::size_t count) {
    const std::string_view taken = tail_.substr(0, count);
    tail_.remove_prefix(taken.size());
    return taken;
  }

  void read_group() {
    bool look_around = false;
    for (const std::string_view start : {"(?:", "(?>", "(?=", "(?!", "(?<=", "(?<!"}) {
      if (!tail_.starts_with(start)) continue;
      look_around = start != "(?:" && start != "(?>";
      result_ += take(start.size());
      groups_.push_back(look_around);
      return;
    }
    if (tail_.starts_with("(?") || tail_.starts_with("(*")) refuse(tail_.substr(0, 3));
    result_ += take(1);
    groups_.push_back(false);
  }

  /// Reads (?i:...) of plain letters. Some pairs of letters are equivalent to one character in another case: ss, fi.
  void read_any_case() {
    const std::string_view inner = tail_.substr(4, tail_.find(')') - 4);
    const auto plain = [](char c) {
      return is_letter(c) || std::string_view("'|[]").find(c) != std::string_view::npos;
    };
    if (inner.size() + 4 == tail_.size() || !std::ranges::all_of(inner, plain)) refuse("(?i:", "with non-letters");
    std::string lower(inner);
    std::ranges::transform(lower, lower.begin(), [](char c) { return is_letter(c) ? static_cast<char>(c | 0x20) : c; });
    for (const char* pair : {"ff", "fi", "fl", "ss", "st"}) {
      if (lower.find(pair) != std::string::npos) refuse(fmt::format("{} in (?i:", pair));
    }
    result_ += take(inner.size() + 5);
  }

  void read_quantifier() {
    std::size_t size = 1;
    if (tail_[0] == '{') {
      size = tail_.find('}');
      const std::string_view inner = tail_.substr(1, size == std::string_view::npos ? size : size - 1);
      const auto comma = std::min(inner.find(','), inner.size());
      const bool numbers = comma > 0 && size != std::string_view::npos &&
                           std::ranges::all_of(inner.substr(0, comma), is_digit) &&
                           std::ranges::all_of(inner.substr(std::min(comma + 1, inner.size())), is_digit);
      if (!numbers) refuse("{");
      ++size;
      if (tail_.substr(size).starts_with('+')) refuse(tail_.substr(0, size + 1));
      if (tail_.substr(size).starts_with('?') && comma == inner.size()) refuse(tail_.substr(0, size + 1));
    }
    if (tail_.substr(size).starts_with('?') || tail_.substr(size).starts_with('+')) ++size;
    if (is_quantifier(tail_.substr(size))) refuse(tail_.substr(0, size + 1));
    result_ += take(size);
  }

  /// Reads an escape that is the same in all engines, or \s or \S. Returns whether it is a single character.
  bool read_escape() {
    const char c = tail_.size() > 1 ? tail_[1] : '\0';
    if (c == 'p' || c == 'P') {
      const std::size_t end = tail_.find('}');
      const std::string_view name = tail_.size() > 2 && tail_[2] == '{' && end != std::string_view::npos
                                        ? tail_.substr(3, end - 3)
                                        : std::string_view();
      if (name.empty() || !std::ranges::all_of(name, is_letter)) refuse(tail_.substr(0, 3));
      // A longer name is that of a script, which PCRE2 without sc: takes for the property Script_Extensions.
      result_ += fmt::format("\\{}{{{}{}}}", c, name.size() > 2 ? "sc:" : "", name);
      take(end + 1);
      return false;
    }
    if (c == 'x' || c == 'u') {
      const bool braces = tail_.substr(2).starts_with('{');
      const std::size_t from = braces ? 3 : 2;
      const std::string_view digits = tail_.substr(from, braces ? tail_.find('}') - 3 : c == 'x' ? 2 : 4);
      const bool hexadecimal = std::ranges::all_of(
          digits, [](char d) { return is_digit(d) || (d >= 'a' && d <= 'f') || (d >= 'A' && d <= 'F'); });
      const std::size_t size = from + digits.size() + (braces ? 1 : 0);
      const bool ascii = !digits.empty() && digits[0] < '8';
      if (!hexadecimal || size > tail_.size() || digits.empty() || (c == 'u' && (braces || digits.size() != 4)) ||
          (c == 'x' && !braces && (digits.size() != 2 || !ascii))) {
        refuse(tail_.substr(0, 2));
      }
      result_ += fmt::format("\\x{{{}}}", digits);
      take(size);
      return true;
    }
    const bool known = c == 'd' || c == 'D' || c == 'r' || c == 'n' || c == 't' || c == 'f';
    const bool literal = c > ' ' && c < 0x7F && !is_letter(c) && !is_digit(c) && c != '<' && c != '>' && c != '`';
    if (!known && !literal && c != ' ') refuse(tail_.substr(0, 2));
    result_ += take(2);
    return c != 'd' && c != 'D';
  }

  void read_brackets() {
    result_ += take(tail_.starts_with("[^") ? 2 : 1);
    if (tail_.starts_with(']')) refuse("a first ]", "within brackets");
    bool may_start_range = false;  // whether the item before is a single character and not the end of a range
    for (bool first = true; !tail_.starts_with(']'); first = false) {
      if (tail_.empty()) refuse("[", "without an end");
      for (const std::string_view operation : {"[", "&&", "--", "~~"}) {
        if (tail_.starts_with(operation)) refuse(operation, "within brackets");
      }
      if (tail_.starts_with('-') && !first && !tail_.starts_with("-]")) {
        if (!may_start_range) refuse("-", "within brackets that makes no range");
        result_ += take(1);
        if (tail_.starts_with('[') || !read_item()) refuse("-", "within brackets, not followed by a single character");
        may_start_range = false;
      } else {
        may_start_range = read_item();
      }
    }
    result_ += take(1);
  }

  /// Reads an item within brackets. Returns whether it is a single character.
  bool read_item() {
    if (tail_.starts_with("\\s") || tail_.starts_with("\\S")) {
      result_ += take(2) == "\\s" ? white_space_class : no_white_space_class;
      return false;
    }
    if (tail_.starts_with('\\')) return read_escape();
    std::size_t bytes = 1;
    while (bytes < tail_.size() && (static_cast<unsigned char>(tail_[bytes]) & 0xC0) == 0x80) ++bytes;
    result_ += take(bytes);
    return true;
  }

  const std::string& pattern_;
  std::string_view tail_;
  const std::string& where_;
  std::string result_;
  std::vector<bool> groups_;  // for each open group, whether it is a look-around
};

}  // namespace

std::string pattern_for_pcre(const std::string& pattern, const std::string& where) {
  return Reader(pattern, where).read();
}

}  // namespace ringtrain
