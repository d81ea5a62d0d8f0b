#include "data/tokenizer/bpe_model.h"

#include "data/tokenizer/unicode.h"

namespace ringtrain {

namespace {
constexpr std::string_view space_mark = "\xE2\x96\x81";  // U+2581
}

std::string_view BpeModel::normalise(std::string_view text, Preceding preceding, std::string& storage) const {
  if (spec.alphabet == BpeSpec::Alphabet::bytes) {
    if (spec.nfc && !is_plain_nfc(text)) {
      storage = to_nfc(text);
      text = storage;
    }
    return text;
  }
  const bool wanted = (spec.prefix != BpeSpec::Prefix::never && preceding == Preceding::nothing) ||
                      (spec.prefix == BpeSpec::Prefix::always && preceding == Preceding::token);
  const bool there = text.starts_with(' ') || text.starts_with(space_mark);
  std::string result;
  result.reserve(text.size() + text.size() / 2 + space_mark.size());
  if (wanted && !text.empty() && (spec.prefix_before_space || !there)) result += space_mark;
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    result += word;
    text.remove_prefix(word.size());
    if (text.empty()) break;
    result += space_mark;
    text.remove_prefix(1);
  }
  storage = spec.nfc && !is_plain_nfc(result) ? to_nfc(result) : std::move(result);
  return storage;
}

}  // namespace ringtrain
