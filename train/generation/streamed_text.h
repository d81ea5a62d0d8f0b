// Turns the bytes of new tokens into text that can be printed at once. A token may end inside a character, and a stop
// string may begin in one token and end in another, so both are held back until they are decided. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ringtrain {

class StreamedText {
 public:
  /// stops: none of them empty. raw: bytes as they are. Otherwise only whole characters, and U+FFFD for each maximal
  /// ill-formed part of UTF-8 (the Unicode Standard, section 3.9), as in Rust's lossy decoding.
  explicit StreamedText(std::vector<std::string> stops = {}, bool raw = false);

  /// Adds the bytes of a token. Returns what can be printed now; if a stop string is complete, only what comes before
  /// it.
  std::string add(std::string_view bytes);
  /// Returns whether a stop string has come. Nothing may be added after it.
  bool stopped() const { return stopped_; }
  /// Returns the bytes that were held back, once no more come.
  std::string finish();

 private:
  /// Returns how many bytes at the end of the pending text may begin a stop string.
  std::size_t held_for_a_stop() const;
  std::string printable(std::string_view bytes) const;

  std::vector<std::string> stops_;
  bool raw_;
  std::string pending_;
  bool stopped_ = false;
};

}  // namespace ringtrain
