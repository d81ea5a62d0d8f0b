// What tokenizers ask of Unicode: the classes of code points that their patterns name, and the composed form NFC. Both
// come from utf8proc, whose version of Unicode therefore is ours: code points assigned later count as unassigned.
// White space is not utf8proc's but the property White_Space, as in the engines that made these tokenizers; it is
// fixed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "framework/text/utf8.h"

namespace ringtrain {

/// Bits of a code point's class.
namespace code_class {
inline constexpr std::uint8_t letter = 1;    // \p{L}
inline constexpr std::uint8_t number = 2;    // \p{N}
inline constexpr std::uint8_t mark = 4;      // \p{M}
inline constexpr std::uint8_t space = 8;     // \s: White_Space
inline constexpr std::uint8_t upper = 16;    // [\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]
inline constexpr std::uint8_t lower = 32;    // [\p{Ll}\p{Lm}\p{Lo}\p{M}]
inline constexpr std::uint8_t newline = 64;  // [\r\n]
inline constexpr std::uint8_t other = 128;   // [^\s\p{L}\p{N}]
}  // namespace code_class

/// Returns the classes of all code points, [0x110000]; made at the first call. Any thread may call it.
const std::uint8_t* code_classes();

/// Returns whether a code point belongs to a word: \w of the Unicode Standard's UTS 18, with the joiners.
bool is_word(char32_t c);

/// Returns whether well-formed text is certainly in the form NFC: no code point in it could change or compose.
bool is_plain_nfc(std::string_view text);
/// Returns well-formed text in the form NFC. Throws Error(internal) where memory is short.
std::string to_nfc(std::string_view text);

}  // namespace ringtrain
