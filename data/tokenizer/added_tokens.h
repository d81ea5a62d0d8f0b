// Tokens that are found in the text itself, before any splitting: "<|im_end|>", "<tool_call>". The rules are those of
// Hugging Face's tokenizers (added_vocabulary.rs): the leftmost match, of those the longest; a token may ask to stand
// as a word of its own, or to take the white space beside it along; special ones are passed over where special tokens
// in a text are to be text.
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
  bool normalized = false;   // looked for in the normalised text, not in the raw one
  bool single_word = false;  // not within a word
  bool strip_left = false, strip_right = false;

  bool operator==(const AddedToken&) const = default;
};

/// A stretch of text: an added token, or what stands between them.
struct TextSegment {
  std::string_view text;
  std::int32_t token = -1;  // -1: plain text
};

/// Finds a set of tokens; of two with one content a special one counts, else the first. Immutable; used by several
/// threads at once.
class AddedTokenFinder {
 public:
  AddedTokenFinder() = default;
  explicit AddedTokenFinder(std::vector<AddedToken> tokens);
  bool empty() const { return tokens_.empty(); }
  /// Appends the stretches of well-formed text, in order; views of it. parse_special: special tokens are found, too.
  /// White space that one token takes along on its right may hold the next token: they overlap then, and what comes
  /// after that token is text again, as it is for the reference.
  void find(std::string_view text, bool parse_special, std::vector<TextSegment>& segments) const;

 private:
  const AddedToken* match_at(std::string_view text) const;

  std::vector<AddedToken> tokens_;          // by first byte, then the longest first
  std::vector<std::size_t> first_;          // [257] where the tokens of a first byte begin
  std::vector<unsigned char> first_bytes_;  // those that occur
  bool any_plain_ = false;                  // whether some are not special
};

}  // namespace ringtrain
