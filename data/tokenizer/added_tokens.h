// Tokens that are found in the text itself, before any splitting: "<|im_end|>", "<tool_call>". The rules are those of
// Hugging Face's tokenizers (added_vocabulary.rs): the leftmost match, and the longest of several. A token may only
// match as a separate word, or may include the white space around it. Special tokens are skipped if special tokens in a
// text count as text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace ringtrain {

struct AddedToken {
  std::string content;
  std::int32_t id = 0;
  bool special = false;      // control: text unless special tokens are parsed
  bool normalized = false;   // searched in the normalized text, not in the raw text
  bool single_word = false;  // not within a word
  bool strip_left = false, strip_right = false;

  bool operator==(const AddedToken&) const = default;
};

/// A stretch of text: an added token, or the text between two of them.
struct TextSegment {
  std::string_view text;
  std::int32_t token = -1;  // -1: plain text
};

/// Finds tokens of a set. If two have the same content, a special one counts, or else the first. Immutable; used by
/// several threads at once.
class AddedTokenFinder {
 public:
  AddedTokenFinder() = default;
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);
  bool empty() const { return tokens_.empty(); }
  /// Appends the stretches of well-formed text, in order, as views of it. parse_special: also finds special tokens.
  /// White space that one token includes on its right may contain the next token. Then they overlap, and the characters
  /// after that token are text again, as in the reference.
  void find(std::string_view text, bool parse_special, std::vector<TextSegment>& segments) const;

 private:
  const AddedToken* match_at(std::string_view text) const;

  std::vector<AddedToken> tokens_;          // by first byte, then by decreasing length
  std::vector<std::size_t> first_;          // [257] index of the first token with each first byte
  std::vector<unsigned char> first_bytes_;  // all first bytes
  bool any_plain_ = false;                  // whether some are not special
};

}  // namespace ringtrain
