// Properties of Unicode that tokenizers need outside their patterns: which code points are letters, words, and white
// space, and the composed form NFC. They come from utf8proc, except for the property White_Space, which is fixed.
#pragma once

#include <string>
#include <string_view>

#include "framework/text/utf8.h"

namespace ringtrain {

bool is_white_space(char32_t c);
/// Returns whether a code point is in category L.
bool is_letter(char32_t c);
/// Returns whether a code point belongs to a word: \w of the Unicode Standard's UTS 18, including joiners.
bool is_word(char32_t c);
/// Appends the UTF-8 of a code point, which must not be a surrogate.
void append_utf8(std::string& text, char32_t c);

/// Returns whether well-formed text is certainly in the form NFC: no code point in it could change or compose.
bool is_plain_nfc(std::string_view text);
/// Returns well-formed text in the form NFC. Throws Error(internal) if memory runs out.
std::string to_nfc(std::string_view text);

}  // namespace ringtrain
