#include "data/tokenizer/base64.h"

#include <cstdint>

namespace ringtrain {

namespace {

/// Return the six bits of a character, -1 if it is none of the alphabet.
int bits_of(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  return c == '/' ? 63 : -1;
}

}  // namespace

std::optional<std::string> decode_base64(std::string_view text) {
  for (int i = 0; i < 2 && text.ends_with('='); ++i) text.remove_suffix(1);
  if (text.size() % 4 == 1) return std::nullopt;
  std::string bytes;
  std::uint32_t buffer = 0;
  int held = 0;
  for (const char c : text) {
    const int bits = bits_of(c);
    if (bits < 0) return std::nullopt;
    buffer = buffer << 6 | static_cast<std::uint32_t>(bits);
    held += 6;
    if (held >= 8) {
      held -= 8;
      bytes += static_cast<char>(buffer >> held & 0xFF);
    }
  }
  return bytes;
}

}  // namespace ringtrain
