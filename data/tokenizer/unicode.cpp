#include "data/tokenizer/unicode.h"

#include <utf8proc.h>

#include <cstdlib>
#include <memory>
#include <vector>

#include "framework/error.h"

namespace ringtrain {

namespace {

constexpr char32_t code_points = 0x110000;

utf8proc_category_t category_of(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

/// Returns which code points neither change by themselves nor compose with preceding ones: those of combining class 0
/// that are their own composed form and come first in every canonical decomposition.
std::vector<bool> find_inert() {
  std::vector<bool> inert(code_points, true);
  for (char32_t c = 0; c < code_points; ++c) {
    const auto code = static_cast<utf8proc_int32_t>(c);
    utf8proc_int32_t parts[8];
    int boundary = 0;
    const auto count = utf8proc_decompose_char(
        code, parts, 8, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE), &boundary);
    const bool surrogate = c >= 0xD800 && c <= 0xDFFF;
    if (surrogate || count < 1 || utf8proc_get_property(code)->combining_class != 0) inert[c] = false;
    if (count < 1 || (count == 1 && parts[0] == code)) continue;
    for (utf8proc_ssize_t i = 1; i < count; ++i) inert[parts[i]] = false;
    std::string text;
    append_utf8(text, c);
    if (surrogate || to_nfc(text) != text) inert[c] = false;
  }
  return inert;
}

}  // namespace

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_letter(char32_t c) {
  const utf8proc_category_t category = category_of(c);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool is_word(char32_t c) {
  if (c == 0x200C || c == 0x200D) return true;
  if ((c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
      (c >= 0x1F170 && c <= 0x1F189)) {
    return true;  // letters in circles and squares: symbols that are Alphabetic
  }
  const utf8proc_category_t category = category_of(c);
  const bool letter_or_mark = category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_ME;
  return letter_or_mark || category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
         category == UTF8PROC_CATEGORY_PC;
}

void append_utf8(std::string& text, char32_t c) {
  utf8proc_uint8_t bytes[4];
  const auto count = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(count));
}

bool is_plain_nfc(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    // Nothing before U+0300 composes or changes, nor does a byte that continues such a code point.
    if (static_cast<unsigned char>(text[at]) < 0xCC) {
      ++at;
      continue;
    }
    static const std::vector<bool> inert = find_inert();
    const CodePoint code = decode_utf8(text, at);
    if (!inert[code.value]) return false;
    at += code.bytes;
  }
  return true;
}

std::string to_nfc(std::string_view text) {
  utf8proc_uint8_t* composed = nullptr;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
  const utf8proc_ssize_t bytes = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                              static_cast<utf8proc_ssize_t>(text.size()), &composed, options);
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(composed, &std::free);
  if (bytes < 0) fail(ExitCode::internal, "normalizing {} bytes: {}", text.size(), utf8proc_errmsg(bytes));
  return {reinterpret_cast<const char*>(composed), static_cast<std::size_t>(bytes)};
}

}  // namespace ringtrain
