#include "framework/config/config_values.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <string_view>

#include "framework/config/config_problems.h"
#include "framework/text/token_count.h"

namespace ringtrain {

namespace {

std::string range_text(const IntegerRange& range) {
  return fmt::format("an integer from {} to {}", range.low, range.high);
}

/// Returns whether text is digits after at most one sign, without a leading zero, which YAML 1.1 would read as octal.
bool is_integer(std::string_view text) {
  if (!text.empty() && (text[0] == '-' || text[0] == '+')) text.remove_prefix(1);
  if (text.empty() || (text.size() > 1 && text[0] == '0')) return false;
  return std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// Parses all of text as T, after an optional plus sign.
template <class T>
std::errc parse(std::string_view text, T& out) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (error != std::errc{}) return error;
  return end == text.data() + text.size() ? std::errc{} : std::errc::invalid_argument;
}

bool is_plain_scalar(const YamlValue& value) {
  return value.kind == YamlValue::Kind::scalar && !value.quoted;
}

template <class T>
void read_whole(const YamlValue& value, const std::string& wanted, T low, T high, T& out, const ReportProblem& report) {
  if (!is_plain_scalar(value) || !is_integer(value.text)) {
    std::string hint;
    double real = 0;  // a user who writes 1e3 or 8.0 means an integer
    if (is_plain_scalar(value) && parse(value.text, real) == std::errc{} && real >= -9e15 && real <= 9e15 &&
        real == static_cast<double>(static_cast<std::int64_t>(real))) {
      hint = fmt::format("; write {}", static_cast<std::int64_t>(real));
    }
    return report(value.line, fmt::format("is {}, but must be {}{}", described(value), wanted, hint));
  }
  T parsed{};
  if (parse(value.text, parsed) != std::errc{} || parsed < low || parsed > high) {
    return report(value.line, fmt::format("{} is out of range; it must be {}", excerpt(value.text), wanted));
  }
  out = parsed;
}

}  // namespace

std::string range_text(const RealRange& range) {
  return fmt::format("{}{}, {}{}", range.low_open ? '(' : '[', range.low, range.high, range.high_open ? ')' : ']');
}

std::string described(const YamlValue& value) {
  if (value.kind == YamlValue::Kind::null) return "empty";
  if (value.kind == YamlValue::Kind::list) return "a list";
  if (value.kind == YamlValue::Kind::map) return "a map";
  return fmt::format(R"(the text "{}")", excerpt(value.text));
}

void read_integer(const YamlValue& value, IntegerRange range, std::int64_t& out, const ReportProblem& report) {
  read_whole(value, range_text(range), range.low, range.high, out, report);
}

void read_tokens(const YamlValue& value, IntegerRange range, std::int64_t& out, const ReportProblem& report) {
  const std::optional<std::int64_t> count = is_plain_scalar(value) ? token_count(value.text) : std::nullopt;
  YamlValue digits = value;
  if (count) digits.text = std::to_string(*count);
  read_whole(digits, range_text(range), range.low, range.high, out, report);
}

void read_unsigned(const YamlValue& value, std::uint64_t& out, const ReportProblem& report) {
  constexpr std::uint64_t high = std::numeric_limits<std::uint64_t>::max();
  read_whole(value, fmt::format("an integer from 0 to {}", high), std::uint64_t{0}, high, out, report);
}

void read_real(const YamlValue& value, const RealRange& range, double& out, const ReportProblem& report) {
  const std::string wanted = "a number in " + range_text(range);
  // Only digits, signs, the point, and the exponent: from_chars by itself would accept "inf" and "nan".
  const bool plain = is_plain_scalar(value) && value.text.find_first_not_of("0123456789+-.eE") == std::string::npos;
  double parsed = 0;
  const std::errc error = plain ? parse(value.text, parsed) : std::errc::invalid_argument;
  if (error == std::errc::result_out_of_range) {
    return report(value.line, fmt::format("{} does not fit in a double; it must be {}", excerpt(value.text), wanted));
  }
  if (error != std::errc{}) {
    return report(value.line, fmt::format("is {}, but must be {}", described(value), wanted));
  }
  const bool low = range.low_open ? parsed > range.low : parsed >= range.low;
  const bool high = range.high_open ? parsed < range.high : parsed <= range.high;
  if (!low || !high) {
    return report(value.line, fmt::format("{} is out of range; it must be {}", excerpt(value.text), wanted));
  }
  out = parsed;
}

void read_flag(const YamlValue& value, bool& out, const ReportProblem& report) {
  if (!is_plain_scalar(value) || (value.text != "true" && value.text != "false")) {
    return report(value.line, fmt::format("is {}, but must be true or false", described(value)));
  }
  out = value.text == "true";
}

void read_text(const YamlValue& value, std::string& out, const ReportProblem& report) {
  if (value.kind != YamlValue::Kind::scalar) {
    return report(value.line, fmt::format("is {}, but must be text", described(value)));
  }
  out = value.text;
}

int read_word(const YamlValue& value, const std::vector<std::string>& words, const ReportProblem& report) {
  if (value.kind == YamlValue::Kind::scalar) {
    const auto found = std::find(words.begin(), words.end(), value.text == "bf16" ? "bfloat16" : value.text);
    if (found != words.end()) return static_cast<int>(found - words.begin());
  }
  report(value.line, fmt::format("is {}, but must be {}{}", described(value), words.size() > 1 ? "one of " : "",
                                 fmt::join(words, ", ")));
  return -1;
}

}  // namespace ringtrain
