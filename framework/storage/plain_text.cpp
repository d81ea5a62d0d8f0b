#include "framework/storage/plain_text.h"

namespace ringtrain {

std::string plain_text(std::string_view text) {
  constexpr std::size_t longest = 120;
  std::string result(text.substr(0, longest));
  for (char& c : result) {
    if (c < 0x20 || c > 0x7E) c = '?';
  }
  return text.size() > longest ? result + "..." : result;
}

}  // namespace ringtrain
