// The pieces into which a pattern splits a text, in brackets, for tests of splitters.
#pragma once

#include <string>
#include <vector>

#include "data/tokenizer/splitter.h"

namespace ringtrain {

/// Returns "[one][two]" for a text that the pattern cuts into "one" and "two".
inline std::string split_pieces(const std::string& pattern, const std::string& text) {
  std::vector<std::size_t> ends;
  Splitter(pattern, "a test").split(text, ends);
  std::string result;
  std::size_t begin = 0;
  for (const std::size_t end : ends) {
    result += "[" + text.substr(begin, end - begin) + "]";
    begin = end;
  }
  return result;
}

}  // namespace ringtrain
