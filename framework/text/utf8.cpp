#include "framework/text/utf8.h"

#include <fmt/core.h>

#include <cstring>

namespace ringtrain {

constexpr std::string_view replacement = "\xEF\xBF\xBD";

Utf8Sequence first_sequence(std::string_view text) {
  const auto* at = reinterpret_cast<const unsigned char*>(text.data());
  const unsigned char lead = at[0];
  if (lead < 0x80) return {1, true};
  std::size_t length = 0;
  unsigned char lowest = 0x80, highest = 0xBF;  // of the second byte
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) lowest = 0xA0;   // no overlong form
    if (lead == 0xED) highest = 0x9F;  // no surrogates
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) lowest = 0x90;
    if (lead == 0xF4) highest = 0x8F;  // nothing beyond U+10FFFF
  } else {
    return {1, false};
  }
  if (text.size() < 2) return {1, false, /*cut_off=*/true};
  if (at[1] < lowest || at[1] > highest) return {1, false};
  for (std::size_t i = 2; i < length; ++i) {
    if (i >= text.size()) return {i, false, /*cut_off=*/true};
    if ((at[i] & 0xC0) != 0x80) return {i, false};
  }
  return {length, true};
}

std::size_t well_formed_prefix(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    std::uint64_t word = 0;
    if (at + sizeof word <= text.size()) {  // eight bytes of ASCII at a time
      std::memcpy(&word, text.data() + at, sizeof word);
      if ((word & 0x8080808080808080ull) == 0) {
        at += sizeof word;
        continue;
      }
    }
    const Utf8Sequence sequence = first_sequence(text.substr(at));
    if (!sequence.well_formed) return at;
    at += sequence.bytes;
  }
  return at;
}

std::string_view lossy_utf8(std::string_view text, std::string& storage, std::int64_t* replaced) {
  std::size_t good = well_formed_prefix(text);
  if (good == text.size()) return text;
  storage.clear();
  storage.reserve(text.size() + replacement.size());
  while (true) {
    storage.append(text.substr(0, good));
    text.remove_prefix(good);
    if (text.empty()) return storage;
    storage.append(replacement);
    ++*replaced;
    text.remove_prefix(first_sequence(text).bytes);
    good = well_formed_prefix(text);
  }
}

std::string spelled_out(std::string_view text, bool (*hidden)(char32_t)) {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    const Utf8Sequence sequence = first_sequence(text);
    const std::string_view character = text.substr(0, sequence.bytes);
    const char32_t code = sequence.well_formed ? decode_utf8(text, 0).value : 0;
    if (sequence.well_formed && !hidden(code)) {
      result += character;
    } else if (sequence.well_formed && sequence.bytes > 1) {
      result += fmt::format("\\u{{{:x}}}", static_cast<std::uint32_t>(code));
    } else {
      for (const unsigned char byte : character) result += fmt::format("\\x{:02x}", byte);
    }
    text.remove_prefix(sequence.bytes);
  }
  return result;
}

std::size_t code_point_border(std::string_view text, std::size_t limit) {
  if (limit >= text.size()) return text.size();
  while (limit > 0 && (static_cast<unsigned char>(text[limit]) & 0xC0) == 0x80) --limit;
  return limit;
}

}  // namespace ringtrain
