#include "data/tokenizer/bpe_model.h"

#include "data/tokenizer/unicode.h"

namespace ringtrain {

namespace {

/// Returns text with spaces as U+2581, and with one at the front on request.
std::string marked(std::string_view text, bool in_front, bool spaces) {
  std::string result;
  result.reserve(text.size() + text.size() / 2 + space_mark.size());
  if (in_front) result += space_mark;
  while (!text.empty()) {
    const std::string_view word = spaces ? text.substr(0, text.find(' ')) : text;
    result += word;
    text.remove_prefix(word.size());
    if (text.empty()) break;
    result += space_mark;
    text.remove_prefix(1);
  }
  return result;
}

}  // namespace

std::string_view BpeModel::normalize(std::string_view text, Preceding preceding, std::string& storage) const {
  if (spec.prepend_mark || spec.mark_spaces) {
    storage = marked(text, spec.prepend_mark && preceding != Preceding::text, spec.mark_spaces);
    text = storage;
  }
  if (spec.nfc && !is_plain_nfc(text)) {
    storage = to_nfc(text);
    text = storage;
  }
  return text;
}

std::string_view BpeModel::metaspace(std::string_view text, Preceding preceding, std::string& storage) const {
  if (!spec.metaspace) return text;
  const bool wanted = (spec.prefix == BpeSpec::Prefix::always && preceding != Preceding::text) ||
                      (spec.prefix == BpeSpec::Prefix::first && preceding == Preceding::nothing);
  const bool there = text.starts_with(' ') || text.starts_with(space_mark);
  storage = marked(text, wanted && !there, true);
  return storage;
}

}  // namespace ringtrain
