// Takes numbers and marks from the beginning of a text, such as a flag's value or a file's name.
#pragma once

#include <charconv>
#include <optional>
#include <string_view>

namespace ringtrain {

/// Takes a number in decimal digits. Returns false, and leaves the text unchanged, if it begins with none, or with one
/// that Number cannot hold.
template <class Number>
bool take_number(std::string_view& text, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

/// Takes a character. Returns false, and leaves the text unchanged, if it begins with another one.
inline bool take(std::string_view& text, char character) {
  if (!text.starts_with(character)) return false;
  text.remove_prefix(1);
  return true;
}

/// Takes two numbers with a mark between them, which must be the whole text: 3:5. Returns false otherwise.
template <class Number>
bool take_pair(std::string_view text, Number& first, char mark, Number& second) {
  return take_number(text, first) && take(text, mark) && take_number(text, second) && text.empty();
}

/// Returns the number that the whole text represents; nothing if it is not a number.
template <class Number>
std::optional<Number> number_of(std::string_view text) {
  Number value{};
  return take_number(text, value) && text.empty() ? std::optional(value) : std::nullopt;
}

}  // namespace ringtrain
