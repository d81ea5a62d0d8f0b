// UTF-8 as bytes: reads one code point at a time from well-formed text, and converts arbitrary bytes to such text.
// Ill-formed bytes become U+FFFD, one for each maximal subpart (the Unicode Standard, section 3.9, table 3-8), as
// Rust's String::from_utf8_lossy does and therefore tokenizers written in Rust see.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ringtrain {

struct CodePoint {
  char32_t value = 0;
  std::uint32_t bytes = 0;
};

/// Returns the code point that starts at `at`. The text must be well formed there and must not end within the code
/// point.
inline CodePoint decode_utf8(std::string_view text, std::size_t at) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(text.data()) + at;
  if (bytes[0] < 0x80) return {bytes[0], 1};
  const auto low_bits = [bytes](int i, int shift) { return static_cast<char32_t>(bytes[i] & 0x3F) << shift; };
  if (bytes[0] < 0xE0) return {static_cast<char32_t>(bytes[0] & 0x1F) << 6 | low_bits(1, 0), 2};
  if (bytes[0] < 0xF0) return {static_cast<char32_t>(bytes[0] & 0x0F) << 12 | low_bits(1, 6) | low_bits(2, 0), 3};
  return {static_cast<char32_t>(bytes[0] & 0x07) << 18 | low_bits(1, 12) | low_bits(2, 6) | low_bits(3, 0), 4};
}

/// What some bytes begin with: a well-formed code point, or a maximal ill-formed subpart.
struct Utf8Sequence {
  std::size_t bytes = 0;
  bool well_formed = false;
  bool cut_off = false;  // ill-formed only because the text ends: more bytes may make it a code point
};
/// Returns what a text, which must not be empty, begins with.
Utf8Sequence first_sequence(std::string_view text);

/// Returns the number of bytes at the start of text that are well-formed UTF-8: all of them if the text is.
std::size_t well_formed_prefix(std::string_view text);

/// Returns text itself if it is well formed. Otherwise writes it to `storage`, with every maximal ill-formed subpart
/// replaced by U+FFFD, and returns a view of that. Adds their number to *replaced.
std::string_view lossy_utf8(std::string_view text, std::string& storage, std::int64_t* replaced);

/// Returns text in which ill-formed bytes and hidden characters are spelled out: bytes and ASCII as \x1b, other
/// characters as \u{202e}.
std::string spelled_out(std::string_view text, bool (*hidden)(char32_t));

/// Returns the largest index up to `limit` that is between two code points of well-formed text.
std::size_t code_point_border(std::string_view text, std::size_t limit);

}  // namespace ringtrain
