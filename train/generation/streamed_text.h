// From the bytes of new tokens to text that can be printed at once. A token may end inside a character, and a stop
// string may begin in one token and end in another, so both are held back until they are decided. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ringtrain {

class StreamedText {
 public:
  /// stops: none of them empty. raw: bytes as they are. Else whole characters alone, and U+FFFD for each maximal
  /// ill-formed part of UTF-8 (the Unicode Standard, section 3.9), as in Rust's lossy decoding.
  explicit StreamedText(std::vector<std::string> stops = {}, bool raw = false);

  /// Adds the bytes of a token. Returns what can be printed now. Once a stop string is complete: what came before it.
  std::string add(std::string_view bytes);
  /// Returns whether a stop string has come. Nothing is added after it.
  bool stopped() const { return stopped_; }
  /// Returns what was held back, when no more bytes come.
  std::string finish();

 private:
  /// Returns how many bytes at the end of what is pending may be the beginning of a stop string.
  std::size_t held_for_a_stop() const;
  std::string printable(std::string_view bytes) const;

  std::vector<std::string> stops_;
  bool raw_;
  std::string pending_;
  bool stopped_ = false;
};

}  // namespace ringtrain
